package lane

// A Waiter is the number of a call that waits for something on a lane. 0 is no call. A PollRole takes
// memory for each number up to the highest, so use small ones, and use them again.
type Waiter uint32

// A PollRole decides which goroutine polls the completion queue of a lane. One polls at a time: a call
// that waits, if nobody polls yet, or else the lane's own goroutine, which sleeps until the armed
// queue has an event. The zero value is a PollRole that nobody holds.
//
// A call that found nothing for itself goes through these steps:
//
//  1. Wait. If it reports true, the call holds the poll role: it polls for all calls, wakes the one
//     for which it finds something, and tells Found. It stops when it has what it waited for, or
//     gives up.
//  2. If another call polls, this one checks once more, since the other may have found it before
//     Wait, and sleeps until it is woken or its deadline passes.
//  3. Leave, in every case: the poll role may have been handed to it in its sleep. If Leave returns a
//     call, wake that one to poll. If nobody waits, arm the queue, poll once more, and call Rest,
//     which leaves the lane to its goroutine.
//
// A call that has polled long enough arms the queue, polls once more, calls Rest and sleeps.
// Whoever finds something for it wakes it; then it begins with step 1 again.
//
// The lane's goroutine calls Event when the queue has woken it, also if it was for nothing. If that
// reports true it polls, and then goes through step 3 as the Waiter Goroutine.
//
// The queue is armed, or its event is under way, whenever nobody holds the poll role: so no completion
// is missed. A PollRole has no lock of its own. Guard each call of a method with one; do not hold
// it while polling.
type PollRole struct {
	holder  Waiter
	waiting waiters // that may be handed the poll role
	rung    bool    // an event came while somebody held the poll role
}

// Goroutine is the lane's own goroutine as a Waiter.
const Goroutine Waiter = 1<<32 - 1

// Wait begins a wait, and reports whether w has to poll. Otherwise another call polls, and w may
// sleep after it has checked once more.
func (r *PollRole) Wait(w Waiter) (poll bool) {
	if r.holder == 0 {
		r.holder = w
		return true
	}
	r.waiting.push(w)
	return false
}

// Holds reports whether w holds the poll role and has to poll. It may have been handed to w in its
// sleep.
func (r *PollRole) Holds(w Waiter) bool { return r.holder == w }

// Holder returns which call holds the poll role, 0 if none does and the lane's goroutine sleeps.
func (r *PollRole) Holder() Waiter { return r.holder }

// Alone reports whether no call waits to be handed the poll role.
func (r *PollRole) Alone() bool { return r.waiting.empty() }

// Found records that something was found for w. The caller wakes w, which is about to leave, so the
// poll role is not handed to it.
func (r *PollRole) Found(w Waiter) { r.waiting.remove(w) }

// Leave ends the wait of w. If next is not 0, that call holds the poll role now, and has to be woken. If
// arm is true, nobody waits: arm the queue and poll it once more. If there was nothing, call Rest;
// if there was something, handle it and call Leave again.
func (r *PollRole) Leave(w Waiter) (next Waiter, arm bool) {
	if r.holder != w {
		r.waiting.remove(w)
		return 0, false
	}
	if r.pass() {
		return r.holder, false
	}
	r.rung = false // the poll that follows finds what the event was about
	return 0, true
}

// pass hands the poll role to the first that waits.
func (r *PollRole) pass() bool {
	if r.waiting.empty() {
		return false
	}
	r.holder = r.waiting.first
	r.waiting.remove(r.holder)
	return true
}

// Rest leaves the lane to its goroutine, after w has armed the queue and found nothing in it. If
// next is not 0, that call has begun to wait meanwhile, and has to be woken to poll. If again is
// true, an event has come meanwhile: arm and poll once more.
func (r *PollRole) Rest(w Waiter) (next Waiter, again bool) {
	if r.holder != w {
		return 0, false
	}
	if r.pass() {
		return r.holder, false
	}
	if r.rung {
		r.rung = false
		return 0, true
	}
	r.holder = 0
	return 0, false
}

// Event records that the queue has woken the lane's goroutine, and reports whether that has to poll.
// If not, a call does, which may have polled for the last time before the event: Rest tells it to
// poll once more.
func (r *PollRole) Event() (poll bool) {
	if r.holder != 0 {
		r.rung = true
		return false
	}
	r.holder = Goroutine
	return true
}
