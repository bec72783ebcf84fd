package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBusyRing: a small ring grows while its stream is used all the time, a larger one while that is fast,
// and the largest not by that.
func TestBusyRing(t *testing.T) {
	require.EqualValues(t, busyTime, busyWithin(DefaultFirstRing))
	require.EqualValues(t, busyTime, busyWithin(busyRing-1))
	require.EqualValues(t, fastTime, busyWithin(busyRing))
	require.EqualValues(t, fastTime, busyWithin(fastRing-1))
	require.Zero(t, busyWithin(fastRing))

	for _, size := range []uint32{DefaultFirstRing, busyRing, fastRing} {
		b := newBed(t, Config{FirstRing: size})
		_, server := b.pair()
		require.Equal(t, size, ringOf(server))
		s, e := server.stream, server.e
		e.mu.Lock()
		received := s.st.Receiver().ReceivedBytes()
		wants := func(filled int, marked time.Duration) bool {
			s.mark, s.marked = received-uint64(filled)*uint64(size), marked
			return s.wantsRing()
		}
		later := time.Since(epoch)
		if size < fastRing {
			later += time.Hour // so that it has just been, however slow this test is
		}
		require.False(t, wants(busyFills, 0), "a ring of %d bytes whose stream has just begun", size)
		require.Equal(t, received, s.mark)
		require.NotZero(t, s.marked)
		require.Equal(t, size < fastRing, wants(busyFills, later), "a ring of %d bytes", size)
		require.False(t, wants(busyFills-1, later), "a ring of %d bytes that was filled less often", size)
		require.Equal(t, later, s.marked)
		require.False(t, wants(busyFills, time.Since(epoch)-busyWithin(size)), "a ring of %d bytes after a while", size)
		e.mu.Unlock()
	}
}
