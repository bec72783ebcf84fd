package lane

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// say gives a record to an end.
func say(t *testing.T, l *Lane, r Record) error {
	r.Epoch, r.Number = 7, l.got
	b := make([]byte, RecordLen)
	require.NoError(t, r.Put(b))
	return l.Arrive(Doorbell{Type: TypeControl}.Imm(), b)
}

func TestPlacesLies(t *testing.T) {
	l := newPair(t, 2)[1]
	open := Record{Kind: KindOpen, Stream: 1, Ring: Ring{Size: 256}, Opens: 1, Port: 1}
	require.NoError(t, say(t, l, open))
	require.NoError(t, l.Accept(l.table.At(1)))
	open.Opens = 2
	requireViolation(t, ProtocolError{RulePlace, 1, 1, 0}, say(t, l, open))
	l.Close(l.table.At(1))
	for _, ok := l.Next(); ok; _, ok = l.Next() {
	}
	requireViolation(t, ProtocolError{RuleRelease, 1, 1, 0}, say(t, l, Record{Kind: KindRelease, Stream: 1}))
}

// A stream that was closed before it was accepted ends all the same.
func TestAcceptOfClosed(t *testing.T) {
	l := newPair(t, 1)[1]
	require.NoError(t, say(t, l, Record{Kind: KindOpen, Stream: 1, Ring: Ring{Size: 256}, Opens: 1, Port: 1}))
	require.NoError(t, say(t, l, Record{Kind: KindClose, Stream: 1}))
	_, ok := l.Next()
	require.False(t, ok, "nothing goes before the answer")
	require.NoError(t, l.Accept(l.table.At(1)))
	for _, want := range []Kind{KindAccepted, KindClose} {
		m, ok := l.Next()
		require.True(t, ok)
		assert.Equal(t, want, m.Record.Kind)
	}
	assert.Zero(t, l.Streams(), "the id is free when both ends have ended")
	var last Event
	for e, ok := l.Event(); ok; e, ok = l.Event() {
		last = e
	}
	assert.Equal(t, EventReleased, last.Kind)
	requireViolation(t, ProtocolError{RuleRelease, 1, 1, 0}, say(t, l, Record{Kind: KindRelease, Stream: 1}))
}

// Nothing follows the end of a stream, whether or not it was answered.
func TestAfterEnd(t *testing.T) {
	for want, answered := range map[Rule]bool{RuleAfterEnd: false, RuleNotOpen: true} {
		l := newPair(t, 1)[1]
		require.NoError(t, say(t, l, Record{Kind: KindOpen, Stream: 1, Ring: Ring{Size: 256}, Opens: 1, Port: 1}))
		require.NoError(t, l.Accept(l.table.At(1)))
		require.NoError(t, say(t, l, Record{Kind: KindClose, Stream: 1}))
		for ok := answered; ok; _, ok = l.Next() {
		}
		requireViolation(t, ProtocolError{want, 1, 0, 0}, say(t, l, Record{Kind: KindFIN, Stream: 1}))
	}
}

// One record accepts all that are to be accepted and whose ids follow one another, and each may go on.
func TestAcceptTogether(t *testing.T) {
	pair := newPair(t, 6)
	d, l := pair[0], pair[1]
	var dialed []*Stream
	for range 6 {
		s, err := d.Open(Ring{RKey: 2, Size: 4096}, 0)
		require.NoError(t, err)
		dialed = append(dialed, s)
	}
	for m, ok := d.Next(); ok; m, ok = d.Next() {
		deliver(t, l, m, make([]byte, RecordLen))
	}
	for id := ID(1); id <= 6; id++ {
		switch s := l.table.At(id); id {
		case 2:
			require.NoError(t, l.Refuse(s, CodePort))
		case 5: // nobody has decided
			continue
		default:
			require.NoError(t, l.Accept(s))
		}
		_, _, ok, err := l.Data(l.table.At(id), 5, false)
		require.False(t, ok, "before the answer")
		require.Equal(t, id == 2, err != nil)
	}
	for ev, ok := l.Event(); ok; ev, ok = l.Event() {
		require.Equal(t, EventOpened, ev.Kind)
	}
	var said []Record
	for m, ok := l.Next(); ok; m, ok = l.Next() {
		said = append(said, Record{Kind: m.Record.Kind, Stream: m.Record.Stream, Count: m.Record.Count})
		deliver(t, d, m, make([]byte, RecordLen))
	}
	assert.Equal(t, []Record{
		{Kind: KindAccepted, Stream: 1, Count: 1}, {Kind: KindRefused, Stream: 2},
		{Kind: KindAccepted, Stream: 3, Count: 2}, {Kind: KindAccepted, Stream: 6, Count: 1},
	}, said)
	told := map[EventKind][]ID{}
	for _, end := range pair {
		for ev, ok := end.Event(); ok; ev, ok = end.Event() {
			told[ev.Kind] = append(told[ev.Kind], ev.Stream.ID())
		}
	}
	slices.Sort(told[EventWritable])
	assert.Equal(t, map[EventKind][]ID{EventAccepted: {1, 3, 4, 6}, EventRefused: {2}, EventWritable: {1, 3, 4, 6}}, told)
	_, _, ok, err := l.Data(l.table.At(4), 5, false)
	require.NoError(t, err)
	require.True(t, ok)
	assert.False(t, dialed[3].unanswered())
	assert.True(t, dialed[4].unanswered())
	requireViolation(t, ProtocolError{RuleNotOpen, 6, uint64(KindAccepted), 0}, say(t, d, Record{Kind: KindAccepted, Stream: 5, Count: 2}))
	assert.True(t, dialed[4].unanswered(), "a lie changes nothing")
}

// A stream that one record accepts together with another owes the credit for what was read of it before.
func TestCreditOfAcceptedTogether(t *testing.T) {
	pair := newPair(t, 2)
	d, l := pair[0], pair[1]
	for range 2 {
		s, err := d.Open(Ring{RKey: 2, Size: 4096}, 0)
		require.NoError(t, err)
		m, ok := d.Next()
		require.True(t, ok)
		deliver(t, l, m, make([]byte, RecordLen))
		_, bell, ok, err := d.Data(s, 4096, false)
		require.NoError(t, err)
		require.True(t, ok)
		deliver(t, l, Message{Bell: bell}, nil)
	}
	for id := ID(1); id <= 2; id++ {
		require.NoError(t, l.Accept(l.table.At(id)))
		require.NoError(t, l.Consume(l.table.At(id), 4096))
	}
	m, ok := l.Next()
	require.True(t, ok)
	require.EqualValues(t, 2, m.Record.Count)
	var credits []uint32
	for m, ok = l.Next(); ok; m, ok = l.Next() {
		credits = append(credits, m.Imm)
	}
	require.ElementsMatch(t, []uint32{Doorbell{TypeCredit, 1, 64}.Imm(), Doorbell{TypeCredit, 2, 64}.Imm()}, credits)
}

// The id of a stream that was refused is the dialer's until it says so: more of the stream may be on
// its way, an end of it included.
func TestReleaseOfRefused(t *testing.T) {
	for _, ended := range []bool{false, true} {
		l := newPair(t, 1)[1]
		require.NoError(t, say(t, l, Record{Kind: KindOpen, Stream: 1, Ring: Ring{Size: 256}, Opens: 1, Port: 1}))
		require.NoError(t, l.Refuse(l.table.At(1), CodePort))
		requireViolation(t, ProtocolError{RuleRelease, 1, 1, 0}, l.releaseArrived(l.table.At(1), 1))
		_, ok := l.Next()
		require.True(t, ok)
		if ended {
			require.NoError(t, say(t, l, Record{Kind: KindClose, Stream: 1}))
		}
		assert.Equal(t, 1, l.Streams())
		require.NoError(t, say(t, l, Record{Kind: KindRelease, Stream: 1}))
		assert.Zero(t, l.Streams())
	}
}
