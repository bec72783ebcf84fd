package link

import (
	"time"

	"github.com/rdmanet/go-rdmanet/internal/fdtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// keptRole is the poll role of a call that has returned and is expected back. A call that has
// found something is mostly followed by another at once, as in a conversation: it would poll as
// well, and its peer would have to wake this end for nothing, since an armed queue cannot be
// disarmed. So that call leaves the queue unarmed and the poll role to the next one, for keepTime
// at most: then a timer arms the queue and leaves the lane to its goroutine.
//
// Nobody waits meanwhile: a call that does takes the poll role. Only what the peer says to an end
// that is in no call is late by that much, and only after a call that was answered. The lane's
// lock guards it.
type keptRole struct {
	number  lane.Waiter // of the call that has returned; 0: the role is not kept
	taken   bool        // a call has polled since the timer was set
	ticking bool
	timeout func() (again time.Duration) // laneEnd.keptTimeout; made once

	left time.Duration // since epoch, when a listener's call that had slept returned; 0: not known
	skip uint16        // so many calls of a listener's do not leave the poll role to the next
	miss uint16        // how many the last one that was slow to come back made of it
}

const (
	// keepTime is for how long the poll role is kept for the next call, or twice that.
	keepTime = 10 * time.Millisecond
	// slowReturn is after how long a call of a listener's has come back late. A listener hears of
	// new streams at any time, and they are not to wait for an application that does something else
	// between its calls. After a late one the role is not kept for the next calls, and for twice as
	// many if they are late again.
	slowReturn          = time.Millisecond
	firstMiss, lastMiss = 16, 128
)

// returned records that a call has come back to the kept role, or was given up.
func (s *keptRole) returned(late bool) {
	switch {
	case late:
		s.miss = min(max(2*s.miss, firstMiss), lastMiss)
		s.skip = s.miss
	case s.left != 0:
		s.miss = 0
	}
	s.left = 0
}

// back records that a call uses the role that was kept for it.
func (s *keptRole) back() {
	if s.taken = true; s.left != 0 {
		s.timeBack()
	}
}

// timeBack is back for a call of which it is known when the one before it returned.
func (s *keptRole) timeBack() { s.returned(time.Since(epoch)-s.left > slowReturn) }

// takeKept gives w the role if it is kept.
func (e *laneEnd) takeKept(w *waiter) bool {
	s := &e.polling.kept
	if s.number == 0 {
		return false
	}
	s.back()
	w.number, s.number = s.number, 0
	e.polling.calls[w.number-1] = w
	return true
}

// keepRole keeps the poll role of w for the next call, unless another call waits.
//
// slept reports that the call has slept; reading the clock for one that has polled takes too long.
func (e *laneEnd) keepRole(w *waiter, slept bool) bool {
	s := &e.polling.kept
	if e.err != nil || e.blocks.Load() || e.othersWait() || !e.polling.role.Holds(w.number) {
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
	e.polling.calls[s.number-1] = nil
	if s.taken = s.ticking; !s.ticking { // else a tick may come at once, and is not for w
		s.ticking = true
		fdtimer.Start(keepTime, s.timeout)
	}
	return true
}

// othersWait reports whether calls wait for what somebody else polls for: messages, a place or an answer.
// mu is held.
func (e *laneEnd) othersWait() bool {
	return e.pollWaiters.any() || len(e.dialer.waiting)+len(e.dialer.answers.waits) > 0 || !e.polling.role.Alone()
}

// dropKept stops keeping the role and returns its holder, in whose name the caller is to leave it.
func (po *polling) dropKept() (n lane.Waiter) {
	n, po.kept.number = po.kept.number, 0
	return n
}

// giveUpKept leaves a kept role to the lane's goroutine, since something is waited for without a
// call. mu is held; startWorker does the rest.
func (e *laneEnd) giveUpKept() {
	if e.polling.kept.number != 0 {
		e.unseen.Store(true)
	}
}

// keptTimeout gives up a role whose call has not come back.
func (e *laneEnd) keptTimeout() (again time.Duration) {
	e.mu.Lock()
	s := &e.polling.kept
	n := lane.Waiter(0)
	switch {
	case e.err != nil:
	case s.taken: // calls come and go; to begin anew takes the time of who leaves
		s.taken = false
		e.mu.Unlock()
		return keepTime
	case s.number == 0: // a call has had it all the time, and begins anew when it leaves
	default:
		n = e.polling.dropKept()
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
