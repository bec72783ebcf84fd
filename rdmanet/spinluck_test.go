package rdmanet

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// withLuck gives the process another luck for a test.
func withLuck(t *testing.T, bad int32) {
	before := luck.bad.Swap(bad)
	turned := luck.turned.Swap(0)
	t.Cleanup(func() { luck.bad.Store(before); luck.turned.Store(turned) })
}

func (l *spinLuck) tries(n int) (tried int) {
	for range n {
		if l.try() {
			tried++
		}
	}
	return tried
}

func TestSpinLuck(t *testing.T) {
	var l spinLuck
	require.Equal(t, 640, l.tries(640))
	misses := 0
	for ; l.tries(64) == 64; misses++ {
		l.miss()
	}
	require.Equal(t, badLuck/missWeighs, misses)
	require.Equal(t, 32, l.tries(64))
	for range 1000 {
		l.miss()
	}
	require.Equal(t, 10, l.tries(640), "never not at all")
	hits := 0
	for ; l.tries(64) < 64; hits++ {
		l.hit()
	}
	require.Less(t, hits, 64, "it turns sooner than it came")
	for range 100 {
		l.hit()
	}
	require.Zero(t, l.bad.Load())
}

// TestSpinProves: whoever has polled well does not ask for luck, and loses that by a miss.
func TestSpinProves(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		return // nobody polls
	}
	withLuck(t, badLuck*(maxBadLuck+1)-1)
	c, _ := pair(t)
	polls := 0
	w := &waiter{budget: newSpinBudget()}
	try := tryFunc(func() bool { polls++; return polls > 1 })
	polled := func(n int) (hits int) {
		for range n {
			polls = 0
			if w.spin(&c.stream, try) {
				hits++
			}
		}
		return hits
	}
	luck.asked.Store(0)
	require.Equal(t, 0, polled(63))
	require.Equal(t, 1, polled(1))
	require.Equal(t, 0, polled(63))
	require.Equal(t, 1, polled(1))
	require.Equal(t, 100, polled(100))
	w.budget.miss()
	w.budget.on = true
	require.Equal(t, 0, polled(10))
}

// TestSpinInACrowd: where others would have polled, a late hit is a miss.
func TestSpinInACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a crowd is soon forgotten
		withLuck(t, 0)
		b := newSpinBudget()
		b.hit(lateHit + 1)
		require.True(t, b.on, "alone it is worth while")
		require.Zero(t, luck.bad.Load())
		b.miss()
		require.Zero(t, luck.bad.Load(), "a miss, too, is one's own")

		b = newSpinBudget()
		luck.turnAway()
		b.hit(lateHit)
		require.True(t, b.on)
		b.hit(lateHit + 1)
		require.False(t, b.on)
		require.EqualValues(t, missWeighs, luck.bad.Load())

		b = newSpinBudget()
		for range proven {
			b.hit(0)
		}
		for range 10 { // now and then is no habit
			b.hit(lateHit + 1)
			require.True(t, b.on)
			b.hit(0)
		}
		require.Zero(t, luck.bad.Load(), "it has healed")
		b.hit(lateHit + 1)
		b.hit(lateHit + 1)
		require.False(t, b.on)
		luck.turned.Store(int64(time.Since(epoch) - crowdLasts))
		bad := luck.bad.Load()
		b.miss()
		require.Equal(t, bad, luck.bad.Load(), "the crowd is forgotten")
	})
}
