package runtimer

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var fired atomic.Int64 // synthetic time orders nothing between a look and a timer after it
		After(16*time.Second, func() { fired.Store(int64(time.Since(start))) })
		stopped := After(time.Second, func() { t.Error("it was stopped") })
		time.Sleep(time.Second / 2)
		stopped.Stop()
		stopped.Stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 16*time.Second, time.Duration(fired.Load()))
	})
}

// TestTimerOfStopped: the timer of a process that was stopped fires late, and tells of one step.
func TestTimerOfStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var fired atomic.Int64
		timer := After(16*time.Second, func() { fired.Store(int64(time.Since(start))) })
		timer.timer.Stop()
		time.Sleep(time.Hour)
		timer.fire()
		require.Zero(t, fired.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, time.Hour+15*time.Second, time.Duration(fired.Load()))

		fired.Store(0)
		timer.fire()
		timer.Stop()
		require.Zero(t, fired.Load(), "it is over")
	})
}
