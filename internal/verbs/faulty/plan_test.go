package faulty

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A seed has the same effect each time, another seed another, and no delay is longer than
// the plan says.
func TestPlanRepeats(t *testing.T) {
	delays := func(p Plan, object uint64) (all []time.Duration) {
		d := p.dice(object)
		for range 1000 {
			all = append(all, d.delay())
		}
		return all
	}
	p := DefaultPlan(7)
	first := delays(p, 3)
	require.Equal(t, first, delays(p, 3))
	require.NotEqual(t, first, delays(p, 4))
	require.NotEqual(t, first, delays(DefaultPlan(8), 3))
	late := 0
	for _, d := range first {
		require.LessOrEqual(t, d, p.Late)
		if d > 0 {
			late++
		}
	}
	require.Greater(t, late, 100)
	require.Less(t, late, 300)
	require.Zero(t, delays(Plan{}, 1)[0])
}

func TestCountdown(t *testing.T) {
	c := FailNth(2)
	require.NoError(t, c.Ask(AllocPD))
	require.ErrorIs(t, c.Ask(RegMR), verbs.ErrNoMemory)
	require.NoError(t, c.Ask(RegMR))
	require.Equal(t, RegMR, c.Failed())
	require.Equal(t, 3, c.Count())
}

// A queue has as many slots as were asked for, and they are free when the user has seen a
// signalled completion.
func TestSlots(t *testing.T) {
	s := slots{cap: 3}
	wr := func(flags verbs.SendFlags) verbs.SendWR { return verbs.SendWR{Flags: flags} }
	require.Equal(t, 3, s.take([]verbs.SendWR{wr(0), wr(verbs.SendSignaled), wr(0), wr(0)}))
	require.Zero(t, s.take([]verbs.SendWR{wr(0)}))
	s.free()
	require.Equal(t, 2, s.take([]verbs.SendWR{wr(verbs.SendSignaled), wr(verbs.SendSignaled), wr(0)}))
	s.giveBack(1)
	require.Equal(t, 1, s.take([]verbs.SendWR{wr(0), wr(0)}))
	s.lift()
	require.Equal(t, 2, s.take([]verbs.SendWR{wr(0), wr(0)}))
}
