//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPause: pauses end, of many at once as well, and none leaves anything behind that would
// end the next before it has begun.
func TestPause(t *testing.T) {
	p := newPollerPause()
	require.NotNil(t, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range 500 {
					p.pause()
				}
			})
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a pause does not end")
	}
	require.Zero(t, testing.AllocsPerRun(100, p.pause))
	var unread int
	require.NoError(t, p.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		unread, _ = unix.Read(int(fd), b[:])
		unread = max(unread, 0)
		return true
	}))
	require.Zero(t, unread, "bytes left in the pipe")
}
