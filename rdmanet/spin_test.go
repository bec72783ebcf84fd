package rdmanet

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpinBudget(t *testing.T) {
	withLuck(t, 0)
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

	b.hit(0)
	b.miss()
	b.parked(trip)
	require.True(t, b.on, "a hit forgives")
}

// TestAcceptedBeginsWithAPark: nothing comes from a client that has yet to wake up.
func TestAcceptedBeginsWithAPark(t *testing.T) {
	client, server := pair(t)
	require.True(t, client.waiter(dirRead).budget.on)
	require.False(t, server.waiter(dirRead).budget.on)
	require.True(t, server.waiter(dirWrite).budget.on)
}

// tryFunc is a condition that needs no completions of requests.
type tryFunc func() bool

func (f tryFunc) try() bool                      { return f() }
func (f tryFunc) beforeSleep() (needsSends bool) { return false }

// TestSetBusyPoll: the setting overrules what polling has paid so far.
func TestSetBusyPoll(t *testing.T) {
	withLuck(t, 0)
	c, _ := pair(t)
	parallel := runtime.GOMAXPROCS(0) > 1 // with one processor nobody polls
	var polls int
	var come bool // what is waited for
	w := &waiter{budget: newSpinBudget()}
	var began time.Time
	try := tryFunc(func() bool {
		if polls++; polls == 1 {
			began = time.Now()
		}
		return come && polls > 1 && time.Since(began) > 10*maxSpin
	})
	spin := func() bool { polls = 0; return w.spin(&c.stream, try) }

	w.budget.miss()
	require.False(t, spin())
	require.Equal(t, 1, polls)
	require.NoError(t, c.SetBusyPoll(patience))
	come = true // later than it would poll by itself
	require.Equal(t, parallel, spin())
	come = false
	w.budget.parked(0)
	require.True(t, w.budget.on)
	require.NoError(t, c.SetBusyPoll(-1))
	require.False(t, spin())
	require.Equal(t, 1, polls)
	require.NoError(t, c.SetBusyPoll(0))
	require.False(t, spin())
	require.Equal(t, parallel, polls > 1)
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.SetBusyPoll(0), net.ErrClosed)
}

// TestSpinEnds: a wait that polls gives up.
func TestSpinEnds(t *testing.T) {
	withLuck(t, 0)
	c, _ := pair(t)
	w := &waiter{budget: newSpinBudget()}
	never := tryFunc(func() bool { return false })
	inTime(t, slowly(5*time.Millisecond), "polling", func() { require.False(t, w.spin(&c.stream, never)) })
	// With one processor nobody polls, so nothing was learnt.
	require.Equal(t, runtime.GOMAXPROCS(0) == 1, w.budget.on)
	require.Zero(t, spinning.Load())
}
