//go:build amd64 || arm64

package link

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestStreamSize: streams are as large as the class of 512 bytes of the allocator, so that a field more
// would have each take 576.
func TestStreamSize(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(stream{}), uintptr(512))
}

// TestFewStreamsCount: a stream that has only moved bytes has no place for what it has not done.
func TestFewStreamsCount(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	say(t, client, server)
	say(t, server, client)
	for _, h := range []*Stream{client, server} {
		s := h.now()
		_ = h.Status()
		s.e.mu.Lock()
		require.Nil(t, s.counts.rare)
		require.Nil(t, s.together)
		s.e.mu.Unlock()
	}
	require.Zero(t, noRareCounts)
}

// TestWakeups: calls that park use channels again that nobody has a token in, and a lane keeps so many.
func TestWakeups(t *testing.T) {
	var w wakeups
	var all []chan struct{}
	for range 2 * spareWakeups {
		all = append(all, w.take())
	}
	for _, c := range all {
		c <- struct{}{}
		w.give(c)
	}
	require.Len(t, w, spareWakeups)
	for range spareWakeups {
		c := w.take()
		require.Contains(t, all, c)
		require.Empty(t, c)
	}
	require.NotContains(t, all, w.take())
}
