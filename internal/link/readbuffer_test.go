package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ringSizes are what the ends of a stream know of the ring of the first.
func ringSizes(owner, peer *Stream) (own, told int) {
	return owner.Status().ReadBuffer, peer.Status().WriteBuffer
}

// TestSetReadBuffer: a ring grows when the program says so, with nothing said on the stream,
// within the limit, and does not shrink below.
func TestSetReadBuffer(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.MaxRing = 64 << 10
		cfg.Shrink = 10 * time.Millisecond
		b := newBed(t, cfg)
		client, server := b.pair()
		for _, c := range []struct{ ask, get int }{
			{-1, int(client.e.cfg.FirstRing)}, {3000, 4096}, {100, 4096}, {64<<10 - 1, 64 << 10}, {1 << 30, 64 << 10},
		} {
			client.SetReadBuffer(c.ask)
			require.Eventually(t, func() bool {
				own, told := ringSizes(client, server)
				return own == c.get && told == c.get
			}, patience, time.Millisecond, "after SetReadBuffer(%d)", c.ask)
		}
		say(t, server, client)
		client.e.mu.Lock()
		before := client.e.counts.resizes
		for range 4 * looks {
			client.e.lookAtRing(client.stream, 1)
		}
		client.e.mu.Unlock()
		client.e.startWorker()
		say(t, server, client)
		own, told := ringSizes(client, server)
		require.Equal(t, []int{64 << 10, 64 << 10}, []int{own, told})
		client.e.mu.Lock()
		defer client.e.mu.Unlock()
		require.Equal(t, before, client.e.counts.resizes)
		require.False(t, client.in.resizing)
	})
}
