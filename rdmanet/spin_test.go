package rdmanet

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpinBudget(t *testing.T) {
	const trip, idle = maxTrip, maxTrip + 1
	b := newSpinBudget()
	require.True(t, b.on, "a new connection polls")

	b.miss()
	require.False(t, b.on)
	b.parked(idle)
	require.False(t, b.on, "a long park says nothing for polling")
	b.parked(trip)
	require.True(t, b.on, "one miss costs one short park")

	// Polling that never pays is tried ever less often.
	parks := 0
	for range 20 {
		b.miss()
		for n := 1; ; n++ {
			require.LessOrEqual(t, n, 1<<maxMisses/2)
			b.parked(trip)
			if b.on {
				parks = n
				break
			}
		}
	}
	require.Equal(t, 1<<maxMisses/2, parks)

	b.hit()
	b.miss()
	b.parked(trip)
	require.True(t, b.on, "a hit forgives")
}

// TestSpinEnds: a wait that polls gives up in time, and at its deadline.
func TestSpinEnds(t *testing.T) {
	c, _ := pair(t)
	w := &waiter{try: func() bool { return false }, budget: newSpinBudget()}
	began := time.Now()
	require.False(t, w.spin(c, dirRead))
	require.Less(t, time.Since(began), soon)
	// With one processor nobody polls, so nothing was learnt.
	require.Equal(t, runtime.GOMAXPROCS(0) == 1, w.budget.on)
	require.Zero(t, spinning.Load())
}
