package lane

import (
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
