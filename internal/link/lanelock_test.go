package link

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLaneLock: one holder at a time, and none passes the lock to nobody.
func TestLaneLock(t *testing.T) {
	var l laneLock
	var all sync.WaitGroup
	holders, count := 0, 0
	var passes atomic.Int32
	const goroutines, each = 8, 2000
	for range goroutines {
		all.Go(func() {
			mine := make(chan struct{}, 1)
			for range each {
				l.Lock()
				holders++
				if holders != 1 {
					t.Errorf("%d holders", holders)
				}
				count++
				holders--
				if l.contended() {
					passes.Add(1)
					l.pass(mine)
				} else {
					l.Unlock()
				}
			}
		})
	}
	within(t, "lock and pass", all.Wait)
	require.Equal(t, goroutines*each, count)
	require.Empty(t, l.passed)
	require.False(t, l.contended())
}

// TestLaneLockPasses: who passes the lock has it again behind those who have waited, not before
// them.
func TestLaneLockPasses(t *testing.T) {
	var l laneLock
	mine := make(chan struct{}, 1)
	for range 200 {
		had := false
		done := make(chan struct{})
		l.Lock()
		go func() {
			defer close(done)
			l.Lock()
			had = true
			l.Unlock()
		}()
		within(t, "the other begins to wait", func() {
			for !l.contended() {
			}
		})
		l.pass(mine)
		l.Lock()
		require.True(t, had)
		l.Unlock()
		<-done
	}
}
