//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimeoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := timeoutList{after: 5 * time.Second}
		var fired []time.Duration
		var mu sync.Mutex
		f := func() {
			mu.Lock()
			defer mu.Unlock()
			fired = append(fired, time.Since(start))
		}

		first := l.add(f)
		time.Sleep(time.Second)
		l.add(f)
		time.Sleep(time.Second)
		third := l.add(f)
		l.add(f)
		l.remove(first)
		l.remove(first)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{6 * time.Second, 7 * time.Second, 7 * time.Second}, fired)
		l.remove(third)

		// It begins again after it was empty, and after it had run for nothing.
		l.remove(l.add(f))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		fired = nil
		again := time.Since(start)
		l.add(f)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{again + 5*time.Second}, fired)
	})
}

// TestTimeoutListSteps has a list that counts the time in which the process ran: the timer
// of a process that stood still fires once, however late.
func TestTimeoutListSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := timeoutList{after: 4 * time.Second, steps: 4}
		var mu sync.Mutex // synthetic time orders nothing between a look and a timer after it
		var fired []time.Duration
		f := func() {
			mu.Lock()
			defer mu.Unlock()
			fired = append(fired, time.Since(start))
		}
		l.add(f)
		time.Sleep(1500 * time.Millisecond)
		removed := l.add(f)
		l.add(f)
		l.remove(removed)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{5 * time.Second, 6 * time.Second}, fired, "a step is added to what may have gone by already")
		require.Equal(t, 6*time.Second, l.past, "no timer runs for nothing")

		// A timer that fires late, as after a stop, tells of one step.
		fired, start = nil, time.Now()
		l.add(f)
		l.timer.Stop()
		time.Sleep(time.Hour)
		l.fire()
		mu.Lock()
		require.Empty(t, fired)
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Hour + 4*time.Second}, fired)
	})
}
