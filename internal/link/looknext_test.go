package link

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// aboutToLeave has a call have the baton that is about to leave it: it may have polled for the last
// time, and not run for as long as it likes.
func (e *laneEnd) aboutToLeave(t *testing.T) lane.Waiter {
	t.Helper()
	var n lane.Waiter
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.baton.Holder() != 0 {
			return false
		}
		w := &waiter{e: e}
		e.enter(w)
		n = w.number
		e.calls[n-1] = nil
		return e.baton.Wait(n)
	}, patience, time.Millisecond)
	return n
}

// TestCloseBehindWhoLeaves: Close finds what has come although the call that has the baton polls no
// more: the peer, of which something is unread, has a reset.
func TestCloseBehindWhoLeaves(t *testing.T) {
	for _, fails := range []bool{false, true} {
		b := newBed(t, Config{})
		client, server := b.pair()
		say(t, client, server)
		e := server.e
		n := e.aboutToLeave(t)
		_, err := client.Write([]byte("nobody reads this"))
		require.NoError(t, err)
		closed := make(chan error, 1)
		go func() { closed <- server.Close() }()
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return !e.baton.Alone()
		}, patience, time.Millisecond, "Close does not wait for its turn")
		if fails {
			e.fail(errGone)
		}
		e.leave(n)
		within(t, "Close", func() { require.NoError(t, <-closed) })
		if !fails {
			_, err = client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
	}
}
