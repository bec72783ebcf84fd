package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBusyRing: a small ring grows while its stream is used all the time, a larger one while that is fast
// and needs many credits, and the largest not by that.
func TestBusyRing(t *testing.T) {
	for _, mean := range []uint32{1, fastMessage} {
		require.Equal(t, busyTime, busyWithin(DefaultFirstRing, mean))
		require.Equal(t, busyTime, busyWithin(busyRing-1, mean))
		require.Zero(t, busyWithin(fastRing, mean))
	}
	require.Equal(t, fastTime, busyWithin(busyRing, fastMessage))
	require.Equal(t, fastTime, busyWithin(fastRing-1, fastMessage))
	require.Zero(t, busyWithin(busyRing, fastMessage-1))

	for _, size := range []uint32{DefaultFirstRing, busyRing, fastRing} {
		b := newBed(t, Config{FirstRing: size})
		_, server := b.pair()
		require.Equal(t, size, ringOf(server))
		s, e := server.stream, server.e
		e.mu.Lock()
		received, got := uint32(s.st.Receiver().ReceivedBytes()), uint32(s.counts.received)
		e.mu.Unlock()
		wants := func(filled, mean uint32, marked time.Duration) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			s.mark, s.messages, s.marked = received-filled*size, got-filled*size/mean, marked
			return s.wantsRing()
		}
		just := func(want bool) time.Duration {
			if want {
				return time.Since(epoch) + time.Hour // however slow this test is
			}
			return time.Since(epoch)
		}
		require.False(t, wants(busyFills, fastMessage, 0), "a ring of %d bytes whose stream has just begun", size)
		require.Equal(t, received, s.mark)
		require.Equal(t, got, s.messages)
		require.NotZero(t, s.marked)
		want := size < fastRing
		require.Equal(t, want, wants(busyFills, fastMessage, just(want)), "a ring of %d bytes", size)
		require.False(t, wants(busyFills-1, fastMessage, just(want)), "a ring of %d bytes that was filled less often", size)
		want = size < busyRing
		require.Equal(t, want, wants(busyFills, fastMessage/2, just(want)), "a ring of %d bytes and small messages", size)
		long := time.Since(epoch) - busyWithin(size, fastMessage)
		require.False(t, wants(busyFills, fastMessage, long), "a ring of %d bytes after a while", size)
	}
}
