package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSpinBudget: polling stops when it finds nothing, and is tried again after short sleeps,
// ever more of them as it keeps finding nothing, and never after long ones.
func TestSpinBudget(t *testing.T) {
	var b spinBudget
	for i := range 10 {
		require.False(t, b.off)
		b.miss()
		for range 20 {
			b.slept(time.Second)
			require.True(t, b.off, "after a long sleep")
		}
		sleeps := 0
		for b.off {
			b.slept(maxTrip)
			sleeps++
		}
		require.Equal(t, 1<<min(i, maxMisses-1), sleeps)
	}
	b.hit()
	b.miss()
	b.slept(0)
	require.False(t, b.off)
}
