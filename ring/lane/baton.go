package lane

// A Waiter is the number of a call that waits for something on a lane. 0 is no call. A Baton takes
// memory for each number up to the highest, so use small ones, and use them again.
type Waiter uint32

// A Baton decides which goroutine polls the completion queue of a lane. One polls at a time: a call
// that waits, if nobody polls yet, or else the lane's own goroutine, which sleeps until the armed
// queue has an event. The zero value is a Baton that nobody holds.
//
// A call that found nothing for itself goes through these steps:
//
//  1. Wait. If it reports true, the call holds the baton: it polls for all calls, wakes the one
//     for which it finds something, and tells Found. It stops when it has what it waited for, or
//     gives up.
//  2. If another call polls, this one checks once more, since the other may have found it before
//     Wait, and sleeps until it is woken or its deadline passes.
//  3. Leave, in every case: the baton may have been handed to it in its sleep. If Leave returns a
//     call, wake that one to poll. If nobody waits, arm the queue, poll once more, and call Rest,
//     which leaves the lane to its goroutine.
//
// A call that has polled long enough arms the queue, polls once more, calls Rest and sleeps.
// Whoever finds something for it wakes it; then it begins with step 1 again.
//
// The lane's goroutine calls Event when the queue has woken it, also if it was for nothing. If that
// reports true it polls, and then goes through step 3 as the Waiter Goroutine.
//
// The queue is armed, or its event is under way, whenever nobody holds the baton: so no completion
// is missed. A Baton has no lock of its own. Guard each call of a method with one; do not hold
// it while polling.
type Baton struct {
	holder  Waiter
	waiting waiters // that may be handed the baton
	rung    bool    // an event came while somebody held the baton
}

// Goroutine is the lane's own goroutine as a Waiter.
const Goroutine Waiter = 1<<32 - 1

// Wait begins a wait, and reports whether w has to poll. Otherwise another call polls, and w may
// sleep after it has checked once more.
func (b *Baton) Wait(w Waiter) (poll bool) {
	if b.holder == 0 {
		b.holder = w
		return true
	}
	b.waiting.push(w)
	return false
}

// Holds reports whether w holds the baton and has to poll. It may have been handed to w in its
// sleep.
func (b *Baton) Holds(w Waiter) bool { return b.holder == w }

// Holder returns which call holds the baton, 0 if none does and the lane's goroutine sleeps.
func (b *Baton) Holder() Waiter { return b.holder }

// Alone reports whether no call waits to be handed the baton.
func (b *Baton) Alone() bool { return b.waiting.empty() }

// Found records that something was found for w. The caller wakes w, which is about to leave, so the
// baton is not handed to it.
func (b *Baton) Found(w Waiter) { b.waiting.remove(w) }

// Leave ends the wait of w. If next is not 0, that call holds the baton now, and has to be woken. If
// arm is true, nobody waits: arm the queue and poll it once more. If there was nothing, call Rest;
// if there was something, handle it and call Leave again.
func (b *Baton) Leave(w Waiter) (next Waiter, arm bool) {
	if b.holder != w {
		b.waiting.remove(w)
		return 0, false
	}
	if b.pass() {
		return b.holder, false
	}
	b.rung = false // the poll that follows finds what the event was about
	return 0, true
}

// pass hands the baton to the first that waits.
func (b *Baton) pass() bool {
	if b.waiting.empty() {
		return false
	}
	b.holder = b.waiting.first
	b.waiting.remove(b.holder)
	return true
}

// Rest leaves the lane to its goroutine, after w has armed the queue and found nothing in it. If
// next is not 0, that call has begun to wait meanwhile, and has to be woken to poll. If again is
// true, an event has come meanwhile: arm and poll once more.
func (b *Baton) Rest(w Waiter) (next Waiter, again bool) {
	if b.holder != w {
		return 0, false
	}
	if b.pass() {
		return b.holder, false
	}
	if b.rung {
		b.rung = false
		return 0, true
	}
	b.holder = 0
	return 0, false
}

// Event records that the queue has woken the lane's goroutine, and reports whether that has to poll.
// If not, a call does, which may have polled for the last time before the event: Rest tells it to
// poll once more.
func (b *Baton) Event() (poll bool) {
	if b.holder != 0 {
		b.rung = true
		return false
	}
	b.holder = Goroutine
	return true
}
