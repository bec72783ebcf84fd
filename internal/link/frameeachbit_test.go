package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// TestFrameEachBit changes one bit of a frame, each in a stream of its own: Read gives out nothing
// of that frame, and both ends are told why.
func TestFrameEachBit(t *testing.T) {
	const size = 20
	b := checkedBed(t)
	beside, there := b.pair()
	for bit := range 8 * (ring.FrameHeaderLen + size) { // nobody reads the padding behind
		client, server := b.pair()
		_, err := client.Write(noise(size, 1))
		require.NoError(t, err)
		awaitUnread(t, server, ring.FrameLen(size))
		flipBit(server, bit)
		var n int
		within(t, "Read", func() { n, err = server.Read(make([]byte, size)) })
		require.Error(t, err, "bit %d", bit)
		requireCorrupt(t, err)
		require.Zero(t, n, "bit %d", bit)
		require.EqualValues(t, 1, server.Status().ChecksumErrors, "bit %d", bit)
		within(t, "the peer's Read", func() { _, err = client.Read(make([]byte, 1)) })
		requireCorrupt(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	say(t, beside, there)
}
