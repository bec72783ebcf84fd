package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestBusyRing: a small ring grows while its stream is used all the time, a larger one while that is fast
// and needs many credits, one after the other up to fastRing, and none beyond it by that.
func TestBusyRing(t *testing.T) {
	for _, size := range []uint32{DefaultFirstRing, busyRing, 2 * busyRing, busyRing * chunkGrowth, fastRing} {
		fills, within := busyFor(size)
		busy, fast := size < busyRing, size < fastRing
		require.Equal(t, fast, fills > 0)

		b := newBed(t, Config{FirstRing: size})
		_, server := b.pair()
		require.Equal(t, size, ringOf(server))
		s, e := server.stream, server.e
		e.mu.Lock()
		received, got := uint32(s.st.Receiver().ReceivedBytes()), uint32(s.counts.received)
		e.mu.Unlock()
		wantsLocked := func(filled, mean uint32, marked time.Duration) bool {
			s.in.mark, s.in.messages, s.in.marked = received-filled*size, got-filled*size/mean, marked
			return s.wantsRing()
		}
		wants := func(filled, mean uint32, marked time.Duration) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return wantsLocked(filled, mean, marked)
		}
		later := time.Since(epoch) + time.Hour // so that it has just been, however slow this test is
		require.False(t, wants(fastFills, fastMessage, 0), "a ring of %d bytes whose stream has just begun", size)
		require.Equal(t, fast, wants(max(fills, 1), fastMessage, later), "a ring of %d bytes", size)
		if !fast {
			continue
		}
		e.mu.Lock()
		next := s.larger()
		e.mu.Unlock()
		require.LessOrEqual(t, next, uint32(fastRing))
		more, _ := busyFor(next)
		require.Equal(t, next < fastRing, more > 0, "a ring of %d bytes behind one of %d", next, size)
		require.Equal(t, received, s.in.mark)
		require.Equal(t, got, s.in.messages)
		require.Less(t, s.in.marked, later)
		require.False(t, wants(fills-1, fastMessage, later), "a ring of %d bytes that was filled less often", size)
		require.Equal(t, busy, wants(fills, fastMessage/2, later), "a ring of %d bytes and small messages", size)
		require.False(t, wants(fills, fastMessage, time.Since(epoch)-within), "a ring of %d bytes after a while", size)

		e.mu.Lock()
		p, err := e.slab.Alloc(size, 0)
		require.NoError(t, err)
		require.NoError(t, e.state.Offer(s.st, lane.Ring(p.Ring())))
		offered := wantsLocked(fills, fastMessage, later) // before the worker can tell the peer, which moves then
		e.settle()
		e.mu.Unlock()
		require.False(t, offered, "one was offered")
	}
}
