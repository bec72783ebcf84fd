//go:build timing && linux

package rdmanet

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cpuTime is what the process has used so far, user and system.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// requireRest measures the CPU time of the process until it is less than little in a while,
// in which nobody wakes up. What went before has left something behind, as for the
// collector, and heartbeats are little work: so any of twenty times will do.
func requireRest(t *testing.T, while, little time.Duration, parks func() uint64) {
	t.Helper()
	const most = 20
	var used time.Duration
	var woken uint64
	for n := 1; n <= most; n++ {
		before, cpu := parks(), cpuTime(t)
		time.Sleep(while)
		used, woken = cpuTime(t)-cpu, parks()-before
		t.Logf("try %d of at most %d: %v of CPU time in %v, %d wake-ups", n, most, used, while, woken)
		if used < little && woken == 0 {
			return
		}
	}
	require.Less(t, used, little)
	require.Zero(t, woken, "somebody woke up")
}

// TestTimingIdle: a hundred idle connections use no CPU.
func TestTimingIdle(t *testing.T) {
	idleConns(t, 100, func(parks func() uint64) { requireRest(t, time.Second, slowly(20*time.Millisecond), parks) })
}

// TestTimingStopCostsNothing: who waits for a process that is stopped uses no CPU.
func TestTimingStopCostsNothing(t *testing.T) {
	twoProcessFlavours(t, whileStopped(func(t *testing.T, parks func() uint64) {
		requireRest(t, 200*time.Millisecond, slowly(10*time.Millisecond), parks)
	}))
}
