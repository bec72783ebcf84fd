package lane

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// newPairAfter is newPair after so many opens, of which nothing is left.
func newPairAfter(t testing.TB, opens uint32, places int) [2]*Lane {
	pair := newPair(t, places)
	for _, l := range pair {
		l.opens, l.seen = opens, opens
	}
	return pair
}

// openOne has the dialer open a stream and say so, and returns it with its OPEN.
func openOne(t testing.TB, d *Lane) (*Stream, Message) {
	s, err := d.Open(Ring{RKey: 2, Size: 4096}, 0)
	require.NoError(t, err)
	m, ok := d.Next()
	require.True(t, ok)
	require.Equal(t, KindOpen, m.Record.Kind)
	return s, m
}

// TestGoAwayAtTheWrap: the number of an OPEN begins anew after 2^32 of them, and that must neither
// make a lie of GOAWAY nor have a stream dialled again that the listener serves, or the reverse.
func TestGoAwayAtTheWrap(t *testing.T) {
	for _, before := range []uint32{0, math.MaxInt32 - 1, math.MaxInt32, math.MaxUint32 - 3, math.MaxUint32 - 2, math.MaxUint32 - 1, math.MaxUint32} {
		pair := newPairAfter(t, before, 8)
		d, l := pair[0], pair[1]
		old, _ := d.Open(Ring{RKey: 2, Size: 4096}, 0)
		_, err := d.Open(Ring{RKey: 2, Size: 4096}, 0)
		require.NoError(t, err)
		carry(t, pair)
		l.GoAwayFinal()
		var late []*Stream // opened before the dialer hears of it
		b := make([]byte, RecordLen)
		for range 2 {
			s, m := openOne(t, d)
			late = append(late, s)
			deliver(t, l, m, b)
		}
		var again []*Stream
		for _, e := range carry(t, pair) {
			require.NotEqual(t, EventOpened, e.Kind, "after %d", before)
			if e.Kind == EventRedial {
				again = append(again, e.Stream)
			}
		}
		require.ElementsMatch(t, late, again, "after %d", before)
		require.Equal(t, stateOpen, old.state())
	}
}

// TestGoAwayOfAnOldStream: a stream that has been open for longer than numbers can be told apart is
// no lie of the listener, and stays.
func TestGoAwayOfAnOldStream(t *testing.T) {
	for _, between := range []uint32{1, math.MaxInt32, 1 << 31, 1<<31 + 1, math.MaxUint32 - 1} {
		pair := newPair(t, 8)
		d, l := pair[0], pair[1]
		old, _ := d.Open(Ring{RKey: 2, Size: 4096}, 0)
		carry(t, pair)
		d.opens += between
		l.opens += between
		l.GoAwayFinal()
		require.NotContains(t, kindsOf(carry(t, pair)), EventRedial, "%d opens ago", between)
		require.Equal(t, stateOpen, old.state())
	}
}

// TestGoAwayOfANumberThatCameAgain: a stream may be open for so long that one which the listener ignores has its
// number. It was answered, so it was seen: the listener tells no lie, and the stream is not dialled again.
func TestGoAwayOfANumberThatCameAgain(t *testing.T) {
	pair := newPair(t, 8)
	d, l := pair[0], pair[1]
	old, _ := d.Open(Ring{RKey: 2, Size: 4096}, 0)
	carry(t, pair)
	d.opens += math.MaxUint32
	d.seen += math.MaxUint32
	l.opens += math.MaxUint32
	l.GoAwayFinal()
	late, m := openOne(t, d)
	require.Equal(t, old.number, late.number)
	deliver(t, l, m, make([]byte, RecordLen))
	var again []*Stream
	for _, e := range carry(t, pair) {
		if e.Kind == EventRedial {
			again = append(again, e.Stream)
		}
	}
	require.Equal(t, []*Stream{late}, again)
	require.Equal(t, stateOpen, old.state())
}

// TestGoAwayCountsWrongly: a listener that has seen more opens than were sent lies, and so does one
// that ignores a stream that it has accepted; also where the number begins anew between them.
func TestGoAwayCountsWrongly(t *testing.T) {
	for _, before := range []uint32{0, math.MaxUint32 - 1, math.MaxUint32} {
		for _, off := range []int32{1, 2, math.MaxInt32, -1} {
			pair := newPairAfter(t, before, 8)
			d, l := pair[0], pair[1]
			_, err := d.Open(Ring{RKey: 2, Size: 4096}, 0)
			require.NoError(t, err)
			carry(t, pair)
			l.GoAway()
			carry(t, pair)
			b := make([]byte, RecordLen)
			said := d.opens + uint32(off)
			require.NoError(t, Record{Kind: KindGoAway, Stage: StageFinal, Opens: said, Epoch: 7, Number: d.got}.Put(b))
			err = d.Arrive(Doorbell{Type: TypeControl}.Imm(), b)
			require.ErrorIs(t, err, RuleOpenNumber, "after %d, %d", before, off)
		}
	}
}
