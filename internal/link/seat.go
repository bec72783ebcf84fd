package link

import (
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// seat is the baton of a call that has gone and is expected back. A call that has found
// something will mostly be followed by another at once, as in a conversation: it would poll as
// well, and its peer would have to wake this end for nothing, since an armed queue cannot be
// disarmed. So that call leaves the queue unarmed and the baton to the next one, for absence
// at most: then a timer arms the queue and leaves the lane to its goroutine.
//
// Nobody waits meanwhile: a call that does takes the baton. What is late by that much is what
// the peer says to an end that is in no call, and only after a call that was answered. The
// lane's lock guards it.
type seat struct {
	number  lane.Waiter // who has the baton and is away; 0: nobody
	taken   bool        // somebody has polled since the timer was set
	ticking bool
	timer   *time.Timer
}

// absence is for how long a baton waits for the next call, or twice that.
const absence = 500 * time.Microsecond

// takeSeat gives w the baton that waits for it, if there is one.
func (e *laneEnd) takeSeat(w *waiter) bool {
	s := &e.seat
	if s.number == 0 {
		return false
	}
	w.number, s.number, s.taken = s.number, 0, true
	e.calls[w.number-1] = w
	return true
}

// keepSeat leaves the baton of w, which has it, to the next call, unless somebody waits.
func (e *laneEnd) keepSeat(w *waiter) bool {
	s := &e.seat
	if e.err != nil || e.blocks.Load() || !e.baton.Holds(w.number) || !e.baton.Alone() {
		return false
	}
	s.number, w.number = w.number, 0
	e.calls[s.number-1] = nil
	if !s.ticking {
		s.ticking, s.taken = true, false
		if s.timer == nil {
			s.timer = time.AfterFunc(absence, e.relieve)
		} else {
			s.timer.Reset(absence)
		}
	}
	return true
}

// leaveSeat returns who is away with the baton, for the caller to leave it in his place.
func (e *laneEnd) leaveSeat() (n lane.Waiter) {
	n, e.seat.number = e.seat.number, 0
	return n
}

// relieve gives up waiting for a call that has not come back.
func (e *laneEnd) relieve() {
	e.mu.Lock()
	s := &e.seat
	switch {
	case e.err != nil:
	case s.taken: // calls come and go
		s.taken = false
		s.timer.Reset(absence)
		e.mu.Unlock()
		return
	case s.number != 0:
		n := e.leaveSeat()
		s.ticking = false
		e.tasks.Add(1)
		e.mu.Unlock()
		e.leave(n)
		e.tasks.Done()
		return
	}
	s.ticking = false
	e.mu.Unlock()
}
