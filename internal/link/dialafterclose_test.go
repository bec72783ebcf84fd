package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
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

// TestDialAfterDeath: nor does it go by a lane to a process that has ended, of which no event has come yet.
func TestDialAfterDeath(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: failing.Name()}, Idle: patience})
	pair := func() *laneEnd {
		client, server := b.pair()
		say(t, client, server)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		client.e.mu.Lock()
		defer client.e.mu.Unlock()
		client.e.dialer.last = 0 // some time ago
		return client.e
	}
	first := pair()
	require.Same(t, first, pair())
	failing.LosePeers()
	second := pair()
	require.NotSame(t, first, second)
	require.Same(t, second, pair())
}
