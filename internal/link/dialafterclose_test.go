package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDialAfterClose: a dial that begins after the listener has closed opens nothing there, although the
// lane stands.
func TestDialAfterClose(t *testing.T) {
	for range 100 {
		b := newBed(t, Config{})
		client, server := b.pair()
		if !client.e.p.synchronous {
			t.Skip("what was posted is on its way")
		}
		say(t, client, server)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		require.NoError(t, b.l.Close())
		within(t, "a dial", func() {
			_, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
			require.Error(t, err)
		})
	}
}
