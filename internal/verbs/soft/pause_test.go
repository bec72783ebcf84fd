//go:build linux && (amd64 || arm64)

package soft

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPause: pauses end, of many at once as well, and none leaves anything behind that would
// end the next before it has begun.
func TestPause(t *testing.T) {
	p, err := newPollerPause()
	require.NoError(t, err)
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

// oneProcessorFor has the test, and only it, run on one processor.
func oneProcessorFor(t *testing.T) {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(before)
		lookAtProcessors()
	})
	lookAtProcessors()
}

// TestOneProcessorPauses: of those who are woken from within the process some pause.
func TestOneProcessorPauses(t *testing.T) {
	oneProcessorFor(t)
	p := pauser.Load()
	require.NotNil(t, p)
	ended := func() uint64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.ended
	}
	before := ended()
	ctx, ch := newChannelOf(t)
	w := &ch.rd
	waits := make(chan struct{})
	over := make(chan error, 1)
	go func() {
		for range wakesPerPause {
			tries := 0
			if err := w.wait(func() bool {
				if tries++; tries == 1 {
					waits <- struct{}{}
				}
				return tries > 1
			}); err != nil {
				over <- err
				return
			}
		}
		over <- nil
	}()
	for range wakesPerPause {
		<-waits
		w.Wake()
	}
	require.NoError(t, <-over)
	require.GreaterOrEqual(t, ended()-before, uint64(pausedWakes))
	require.NoError(t, ch.Close())
	require.NoError(t, ctx.Close())
}

// TestPauseWithoutPoller: a pipe that the poller does not take would fill, and then stop
// everybody. There are no pauses then, but there are when it takes one.
func TestPauseWithoutPoller(t *testing.T) {
	had := pauser.Swap(nil)
	t.Cleanup(func() { pauser.Store(had) })
	noPoll(t, 2, func(int) bool { return true })
	_, err := newPollerPause()
	require.ErrorIs(t, err, unix.ENOMEM)
	oneProcessorFor(t)
	require.Nil(t, pauser.Load())
	lookAtProcessors()
	require.NotNil(t, pauser.Load())
	mayPause()
}
