package fdtimer

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

// eachAlarm runs a test with what the system has, and with timers of Go's.
func eachAlarm(t *testing.T, f func(t *testing.T)) {
	for _, a := range []alarm{newAlarm(), newGoAlarm()} {
		rest(t)
		mu.Lock()
		clock = a
		mu.Unlock()
		t.Run(map[bool]string{true: "go", false: runtime.GOOS}[isGo(a)], f)
	}
}

func isGo(a alarm) bool { _, ok := a.(goAlarm); return ok }

// rest waits until the goroutine has gone.
func rest(t *testing.T) {
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !running
	}, patience, 5*time.Millisecond)
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("a call is missing")
	}
}

// TestStart: functions are called as long as they ask for it, whoever else is, and no sooner
// than they asked for; then the goroutine goes.
func TestStart(t *testing.T) {
	eachAlarm(t, func(t *testing.T) {
		for range 3 {
			began := time.Now()
			var many, few atomic.Int32
			done := make(chan struct{})
			Start(time.Millisecond, func() time.Duration {
				if many.Add(1) < 20 {
					return 2 * time.Millisecond
				}
				close(done)
				return 0
			})
			Start(time.Millisecond, func() time.Duration { return time.Duration(few.Add(1)%3) * time.Millisecond })
			await(t, done)
			require.GreaterOrEqual(t, time.Since(began), 39*time.Millisecond)
		}
		rest(t)
	})
}

// TestEarlier: who asks for less than others is called before them.
func TestEarlier(t *testing.T) {
	eachAlarm(t, func(t *testing.T) {
		late := atomic.Bool{}
		done := make(chan struct{})
		Start(patience, func() time.Duration { late.Store(true); return 0 })
		for range 100 { // between the others, whatever the goroutine is just doing
			soon := make(chan struct{})
			Start(50*time.Microsecond, func() time.Duration { close(soon); return 0 })
			await(t, soon)
		}
		Start(time.Millisecond, func() time.Duration { // also from within
			Start(time.Millisecond, func() time.Duration { close(done); return 0 })
			return 0
		})
		await(t, done)
		require.False(t, late.Load())
		mu.Lock() // nobody waits for the late one
		entries[0].at = time.Now()
		until = entries[0].at
		clock.set()
		mu.Unlock()
	})
}

// TestLinger: a call that comes while the goroutine lingers is made by it.
func TestLinger(t *testing.T) {
	eachAlarm(t, func(t *testing.T) {
		for _, pause := range []time.Duration{0, linger / 2, linger, linger + linger/4} {
			done := make(chan struct{})
			time.Sleep(pause)
			Start(time.Millisecond, func() time.Duration { close(done); return 0 })
			await(t, done)
		}
	})
}
