package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// TestFrameEachBit changes each bit of a frame in turn, one stream after the other: it is found,
// and nothing of the frame is given out. The padding behind it nobody reads.
func TestFrameEachBit(t *testing.T) {
	const size = 20
	b := checkedBed(t)
	beside, there := b.pair()
	for bit := range 8 * (ring.FrameHeaderLen + size) {
		client, server := b.pair()
		_, err := client.Write(noise(size, 1))
		require.NoError(t, err)
		awaitUnread(t, server, ring.FrameLen(size))
		server.e.mu.Lock()
		server.pieces[0].bytes()[bit/8] ^= 1 << (bit % 8)
		server.e.mu.Unlock()
		n, err := server.Read(make([]byte, size))
		requireCorrupt(t, err)
		require.Zero(t, n, "bit %d", bit)
		require.EqualValues(t, 1, server.Status().ChecksumErrors)
		within(t, "Read", func() { _, err = client.Read(make([]byte, 1)) })
		requireCorrupt(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	say(t, beside, there)
}
