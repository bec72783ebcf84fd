package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSeatReturns: a call of a listener's that was late is not waited for the next times, the
// more often it was the more of them, until one is in time.
func TestSeatReturns(t *testing.T) {
	s := &seat{}
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

	s = &seat{left: time.Since(epoch) - 2*slowReturn}
	s.back()
	require.True(t, s.taken)
	require.EqualValues(t, firstMiss, s.skip)
	s = &seat{left: time.Since(epoch) + time.Hour}
	s.back()
	require.Zero(t, s.skip)
}

// seated reports whether the poll role waits for the next call of a stream's lane.
func seated(s *Stream) bool {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.e.seat.number != 0
}

// endless has a lane wait for calls for ever.
func endless(t *testing.T, e *laneEnd) {
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.seat.ticking {
			return false
		}
		e.seat.ticking = true // so that no timer is started
		return true
	}, patience, time.Millisecond)
}

// keptSeat has an end answer until a call of it leaves the poll role to the next one.
func keptSeat(t *testing.T, from, to *Stream) {
	for range 10000 {
		all(func() { say(t, from, to) }, func() { say(t, to, from) })
		if seated(to) {
			return
		}
	}
	t.Fatal("no call has left the poll role to the next")
}

// TestSeatGivenUp: no call is waited for where something comes that no call waits for: when a
// listener's stream was closed, new streams; where a dial waits, a place.
func TestSeatGivenUp(t *testing.T) {
	b := newBed(t, Config{})
	gone := func(s *Stream) {
		t.Helper()
		require.Eventually(t, func() bool { return !seated(s) }, patience, time.Millisecond)
	}
	client, server := b.pair()
	endless(t, client.e)
	endless(t, server.e)
	keptSeat(t, client, server)
	require.NoError(t, server.Close())
	gone(server)

	client, server = b.pair()
	keptSeat(t, server, client)
	e := client.e
	e.mu.Lock()
	e.giveUpSeat()
	e.mu.Unlock()
	e.chore()
	gone(client)
	keptSeat(t, server, client)
	e.mu.Lock()
	w := new(waiter)
	taken := e.takeSeat(w)
	kept := true
	if taken {
		e.dials = append(e.dials, &dial{done: make(chan struct{})})
		kept = e.keepSeat(w, true)
		e.dials = nil
		e.answers.waits = []answerWait{{done: make(chan struct{})}}
		kept = kept || e.keepSeat(w, true)
		e.answers.waits = nil
		require.True(t, e.keepSeat(w, true))
	}
	e.mu.Unlock()
	require.False(t, taken && kept, "while a dial waits, for a place or for an answer")
}
