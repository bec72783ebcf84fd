package link

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPollBetween: a call that is not to spin polls behind other goroutines for as long as they have
// something to do, not for ever, and until it finds something or has to end. How long a poll takes
// does not matter.
func TestPollBetween(t *testing.T) {
	never := func() bool { return false }
	for _, c := range []struct {
		name   string
		others time.Duration // what they take
		found  int           // by which poll; 0: by none
		over   func() bool
		polls  int
	}{
		{"nobody else", busyYield - 1, 5, never, 1},
		{"busy", busyYield, 0, never, maxYields},
		{"found", busyYield, 5, never, 5},
		{"found at once", 0, 1, never, 1},
		{"over", busyYield, 5, func() bool { return true }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			polls := 0
			found := pollBetween(func() { time.Sleep(c.others) }, func() bool {
				polls++
				time.Sleep(10 * busyYield)
				return polls == c.found
			}, c.over)
			require.Equal(t, c.polls, polls, c.name)
			require.Equal(t, c.polls == c.found, found, c.name)
		})
	}
}

// TestYieldBudget: calls that find nothing behind others do without, ever more of them up to a bound,
// until one finds something.
func TestYieldBudget(t *testing.T) {
	var b yieldBudget
	skipped := func() (n int) {
		for !b.try() {
			n++
		}
		return n
	}
	for range 2 {
		for _, want := range []int{0, 1, 3, 7, 15, 31, 31, 31} {
			b.note(false)
			require.Equal(t, want, skipped())
		}
		b.note(true)
		require.Zero(t, skipped())
	}
}
