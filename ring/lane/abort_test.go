package lane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The last message of a lane names the rule that its peer broke, and nothing follows it.
func TestLaneAbort(t *testing.T) {
	pair := newPair(t, 1)
	_, err := pair[0].Open(Ring{RKey: 2, Size: 4096}, 1)
	require.NoError(t, err)
	carry(t, pair)
	l := pair[1]
	for _, none := range []Rule{0, RuleOverflow, numRules, 255} {
		l.Abort(none)
		require.Zero(t, l.abort.rule, "%v ends no lane", none)
	}
	l.Abort(RuleEpoch)
	l.Abort(RuleRecall) // the first counts
	_, _, ok, err := l.Data(l.table.At(1), 1, false)
	require.NoError(t, err)
	require.False(t, ok)
	events := carry(t, pair)
	require.Equal(t, []EventKind{EventAborted}, kindsOf(events))
	require.ErrorIs(t, events[0].Err, RuleEpoch)
	l.Close(l.table.At(1))
	l.Want(1)
	_, ok = l.Next()
	assert.False(t, ok)
}

// It takes the last receive that the peer has, and waits for none.
func TestLaneAbortSlots(t *testing.T) {
	for _, free := range []int{0, 1, SlotsReserve} {
		pair := newPair(t, 0)
		l := pair[1]
		for l.slots.Free() > free {
			l.slots.Credit()
		}
		l.Abort(RuleReturn)
		m, ok := l.Next()
		require.Equal(t, free > 0, ok)
		if ok {
			require.Equal(t, KindAbort, m.Record.Kind)
			require.EqualValues(t, RuleReturn, m.Record.Code)
			require.True(t, m.Solicited)
		}
	}
	pair := newPair(t, 0)
	for pair[1].slots.hasPlace() {
		pair[1].slots.Record()
	}
	pair[1].Abort(RuleReturn)
	_, ok := pair[1].Next()
	require.False(t, ok, "a record that was not read would be overwritten")
}
