package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// TestLostConfirmation: where the network has lost the message by which the dialer confirms the
// connection, what it says first takes its place. The lane works, and the connection manager hears
// of it once.
func TestLostConfirmation(t *testing.T) {
	needFailing(t)
	before := failing.Notified()
	failing.LoseConfirmations(true)
	t.Cleanup(func() { failing.LoseConfirmations(false) })
	a := newAiling(t, failing, "soft0", false)
	say(t, a.ill, a.other)
	say(t, a.other, a.ill)
	require.Eventually(t, func() bool { return a.ill.e.id.State() == cm.StateConnected }, patience, time.Millisecond, "nobody tells that data has arrived")
	for range 10 {
		say(t, a.other, a.ill)
	}
	require.Equal(t, before+1, failing.Notified())
	require.Equal(t, cm.StateConnected, a.ill.e.id.State())
}
