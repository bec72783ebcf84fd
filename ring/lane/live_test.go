package lane

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLive: which rule a message breaks that is for no live stream. A stream that the listener has not taken
// was never open, though its dialer hears no more of it.
func TestLive(t *testing.T) {
	for _, role := range []Role{RoleDialer, RoleListener} {
		l, err := New(Config{Role: role, Streams: 2, Receives: MinDepth, PeerReceives: MinDepth, Places: MinPlaces})
		require.NoError(t, err)
		rule := func(s *Stream) error {
			l.table.Set(1, s)
			_, err := l.live(1)
			return err
		}
		require.NoError(t, rule(&Stream{opened: true, decided: true}))
		require.ErrorIs(t, rule(nil), RuleNotOpen)
		require.ErrorIs(t, rule(&Stream{decided: true, endGot: true}), RuleNotOpen)
		require.ErrorIs(t, rule(&Stream{opened: true, decided: true, endGot: true}), RuleAfterEnd)
		ended, undecided := rule(&Stream{opened: true, endGot: true}), rule(&Stream{opened: true})
		if role == RoleDialer {
			require.ErrorIs(t, ended, RuleNotOpen)
			require.ErrorIs(t, undecided, RuleNotOpen)
		} else {
			require.ErrorIs(t, ended, RuleAfterEnd)
			require.NoError(t, undecided)
		}
		_, err = l.live(3)
		require.ErrorIs(t, err, RuleStream)
	}
}

// TestLiesAboutAnEndedStream: what is wrong with messages of a stream that this end has ended breaks nothing, and is
// no news.
func TestLiesAboutAnEndedStream(t *testing.T) {
	pair := newPair(t, 1)
	s, err := pair[0].Open(Ring{RKey: 2, Size: 4096}, 0)
	require.NoError(t, err)
	carry(t, pair)
	pair[0].Close(s)
	_, ok := pair[0].Next()
	require.True(t, ok)
	require.True(t, s.endSent)
	require.NoError(t, pair[0].Arrive(Doorbell{Type: TypeCredit, Stream: s.ID(), N: 1}.Imm(), nil))
	b := make([]byte, RecordLen)
	for i, r := range []Record{
		{Kind: KindMoved},
		{Kind: KindRing, Ring: Ring{RKey: 3, Size: 4096}},
		{Kind: KindRing, Ring: Ring{RKey: 4, Size: 4096}},
	} {
		r.Stream, r.Epoch, r.Number = s.ID(), 7, pair[0].got
		require.NoError(t, r.Put(b), i)
		require.NoError(t, pair[0].Arrive(Doorbell{Type: TypeControl}.Imm(), b), i)
	}
	_, told := pair[0].Event()
	require.False(t, told)
	require.False(t, s.Reset())
}

// TestWantEndsWithGoAway: no WANT follows the answer to GOAWAY.
func TestWantEndsWithGoAway(t *testing.T) {
	pair := newPair(t, 0)
	pair[0].Want(1)
	pair[1].GoAway()
	m, ok := pair[1].Next()
	require.True(t, ok)
	deliver(t, pair[0], m, make([]byte, RecordLen))
	m, ok = pair[0].Next()
	require.True(t, ok)
	require.Equal(t, KindGoAway, m.Record.Kind)
	require.False(t, pair[0].Due())
}
