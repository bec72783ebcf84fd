package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/fdtimer"
)

// TestKeptRoleReturns: a call of a listener's that was late is not waited for the next times, the
// more often it was the more of them, until one is in time.
func TestKeptRoleReturns(t *testing.T) {
	s := &keptRole{}
	for _, want := range []uint16{16, 32, 64, 128, 128} {
		s.left = 1
		s.returned(true)
		require.Equal(t, want, s.skip)
		require.Zero(t, s.left)
	}
	s.returned(false) // it is not known when it went
	s.returned(true)
	require.EqualValues(t, lastMiss, s.skip)
	s.left = 1
	s.returned(false)
	s.returned(true)
	require.EqualValues(t, firstMiss, s.skip)

	s = &keptRole{left: time.Since(epoch) - 2*slowReturn}
	s.back()
	require.True(t, s.taken)
	require.EqualValues(t, firstMiss, s.skip)
	s = &keptRole{left: time.Since(epoch) + time.Hour}
	s.back()
	require.Zero(t, s.skip)
}

// roleKept reports whether the poll role is kept for the next call of a stream's lane.
func roleKept(s *Stream) bool {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.e.polling.kept.number != 0
}

// endless has a lane wait for calls for ever.
func endless(t *testing.T, e *laneEnd) {
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.polling.kept.ticking {
			return false
		}
		e.polling.kept.ticking = true // so that no timer is started
		return true
	}, patience, time.Millisecond)
}

// notEndless ends what endless began.
func notEndless(e *laneEnd) { fdtimer.Start(keepTime, e.polling.kept.timeout) }

// awaitKept has an end answer until one of its calls keeps the poll role for the next, which is in time
// whenever it comes.
func awaitKept(t *testing.T, from, to *Stream) {
	for range 10000 {
		all(func() { say(t, from, to) }, func() { say(t, to, from) })
		if roleKept(to) {
			to.e.mu.Lock()
			to.e.polling.kept.left = 0
			to.e.mu.Unlock()
			return
		}
	}
	t.Fatal("no call has left the poll role to the next")
}

// TestKeptRoleGivenUp: no call is waited for where something comes that no call waits for: when a
// listener's stream was closed, new streams; where a dial waits, a place.
func TestKeptRoleGivenUp(t *testing.T) {
	b := newBed(t, Config{})
	gone := func(s *Stream) {
		t.Helper()
		require.Eventually(t, func() bool { return !roleKept(s) }, patience, time.Millisecond)
	}
	client, server := b.pair()
	endless(t, client.e)
	endless(t, server.e)
	awaitKept(t, client, server)
	require.NoError(t, server.Close())
	gone(server)

	client, server = b.pair()
	awaitKept(t, server, client)
	e := client.e
	e.mu.Lock()
	e.giveUpKept()
	e.mu.Unlock()
	e.startWorker()
	gone(client)
	awaitKept(t, server, client)
	e.mu.Lock()
	w := new(waiter)
	taken := e.takeKept(w)
	kept := true
	if taken {
		e.dialer.waiting = append(e.dialer.waiting, &dial{})
		kept = e.keepRole(w, true)
		e.dialer.waiting = nil
		e.dialer.answers.waits = []answerWait{{done: make(chan struct{})}}
		kept = kept || e.keepRole(w, true)
		e.dialer.answers.waits = nil
		require.True(t, e.keepRole(w, true))
	}
	e.mu.Unlock()
	require.False(t, taken && kept, "while a dial waits, for a place or for an answer")
}
