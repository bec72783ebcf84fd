//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = handshakeSteps * time.Second
		start := time.Now()
		var mu sync.Mutex // synthetic time orders nothing between a look and a timer after it
		var fired []time.Duration
		f := func() {
			mu.Lock()
			defer mu.Unlock()
			fired = append(fired, time.Since(start))
		}
		first := startTimeout(after, f)
		time.Sleep(time.Second / 2)
		second := startTimeout(after, f)
		startTimeout(after, f)
		time.Sleep(10 * time.Second)
		first.stop()
		first.stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []time.Duration{after + time.Second/2, after + time.Second/2}, fired)
		second.stop()
	})
}

// TestTimeoutOfStopped counts the time in which the process ran: the timer of a process that
// stood still fires once, however late.
func TestTimeoutOfStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = handshakeSteps * time.Second
		start := time.Now()
		var mu sync.Mutex
		var fired []time.Duration
		late := startTimeout(after, func() {
			mu.Lock()
			defer mu.Unlock()
			fired = append(fired, time.Since(start))
		})
		late.timer.Stop()
		time.Sleep(time.Hour)
		require.False(t, late.step(time.Second))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Hour + after - time.Second}, fired)
		require.False(t, late.step(time.Second), "it is over")
	})
}
