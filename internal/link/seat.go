package link

import (
	"time"

	"github.com/rdmanet/go-rdmanet/internal/fdtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// seat is the poll role of a call that has gone and is expected back. A call that has found
// something will mostly be followed by another at once, as in a conversation: it would poll as
// well, and its peer would have to wake this end for nothing, since an armed queue cannot be
// disarmed. So that call leaves the queue unarmed and the poll role to the next one, for absence
// at most: then a timer arms the queue and leaves the lane to its goroutine.
//
// Nobody waits meanwhile: a call that does takes the poll role. What is late by that much is what
// the peer says to an end that is in no call, and only after a call that was answered. The
// lane's lock guards it.
type seat struct {
	number  lane.Waiter // who has the poll role and is away; 0: nobody
	taken   bool        // somebody has polled since the timer was set
	ticking bool
	relieve func() (again time.Duration) // laneEnd.relieve; made once

	left time.Duration // since epoch, when a call of a listener's went that had slept; 0: not known
	skip uint16        // so many calls of a listener's do not leave the poll role to the next
	miss uint16        // how many the last one that was slow to come back made of it
}

const (
	// absence is for how long a poll role waits for the next call, or twice that.
	absence = 10 * time.Millisecond
	// slowReturn is after how long a call of a listener's has come back late. It hears of new
	// streams at any time: those are not to wait for an application that does something else
	// between its calls. Who was late is not waited for the next times, the more the more often.
	slowReturn          = time.Millisecond
	firstMiss, lastMiss = 16, 128
)

// returned takes note of a call that has come back to the seat, or was given up.
func (s *seat) returned(late bool) {
	switch {
	case late:
		s.miss = min(max(2*s.miss, firstMiss), lastMiss)
		s.skip = s.miss
	case s.left != 0:
		s.miss = 0
	}
	s.left = 0
}

// back takes note of a call that uses the poll role which is there for it.
func (s *seat) back() {
	if s.taken = true; s.left != 0 {
		s.returned(time.Since(epoch)-s.left > slowReturn)
	}
}

// takeSeat gives w the poll role that waits for it, if there is one.
func (e *laneEnd) takeSeat(w *waiter) bool {
	s := &e.seat
	if s.number == 0 {
		return false
	}
	s.back()
	w.number, s.number = s.number, 0
	e.calls[w.number-1] = w
	return true
}

// keepSeat leaves the poll role of w, which has it, to the next call, unless somebody waits, for
// messages, for a place or for an answer.
//
// slept says that the call has; to look at the clock for one that has polled takes too long.
func (e *laneEnd) keepSeat(w *waiter, slept bool) bool {
	s := &e.seat
	if e.err != nil || e.blocks.Load() || e.lookers.some() || len(e.dials)+len(e.answers.waits) > 0 || !e.pollRole.Holds(w.number) || !e.pollRole.Alone() {
		return false
	}
	if e.role == lane.RoleListener {
		if s.skip > 0 {
			s.skip--
			return false
		}
		if slept {
			s.left = time.Since(epoch)
		}
	}
	s.number, w.number = w.number, 0
	e.calls[s.number-1] = nil
	if s.taken = s.ticking; !s.ticking { // else a tick may come at once, and is not for w
		s.ticking = true
		fdtimer.Start(absence, s.relieve)
	}
	return true
}

// leaveSeat returns who is away with the poll role, for the caller to leave it in his place.
func (e *laneEnd) leaveSeat() (n lane.Waiter) {
	n, e.seat.number = e.seat.number, 0
	return n
}

// giveUpSeat leaves the poll role of who is away to the lane's goroutine, since something is waited
// for that no call does. mu is held; chore does the rest.
func (e *laneEnd) giveUpSeat() {
	if e.seat.number != 0 {
		e.unseen.Store(true)
	}
}

// relieve gives up waiting for a call that has not come back.
func (e *laneEnd) relieve() (again time.Duration) {
	e.mu.Lock()
	s := &e.seat
	n := lane.Waiter(0)
	switch {
	case e.err != nil:
	case s.taken: // calls come and go; to begin anew takes the time of who leaves
		s.taken = false
		e.mu.Unlock()
		return absence
	case s.number == 0: // a call has had it all the time, and begins anew when it leaves
	default:
		n = e.leaveSeat()
		s.returned(true)
		e.tasks.Add(1)
	}
	s.ticking = false
	e.mu.Unlock()
	if n != 0 {
		e.leave(n)
		e.tasks.Done()
	}
	return 0
}
