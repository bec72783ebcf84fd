package rdmanet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRunTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, fired := time.Now(), time.Duration(0)
		fire := func() { fired = time.Since(start) }
		afterRunning(16*time.Second, fire)
		stopped := afterRunning(time.Second, func() { t.Error("it was stopped") })
		time.Sleep(time.Second / 2)
		stopped.stop()
		stopped.stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 16*time.Second, fired)

		// The timer of a process that was stopped fires late, and tells of one step.
		fired, start = 0, time.Now()
		timer := afterRunning(16*time.Second, fire)
		timer.timer.Stop()
		time.Sleep(time.Hour)
		timer.fire()
		require.Zero(t, fired)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, time.Hour+15*time.Second, fired)
	})
}
