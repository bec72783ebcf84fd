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
