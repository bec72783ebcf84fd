package lane

// A Waiter names a call that waits for something of a lane. 0 is none. Numbers are small, and those
// that are free are to be used again: a Baton has memory for each up to the greatest.
type Waiter uint32

// Baton says who polls the completion queue of a lane. One polls at a time: a call that
// waits and finds nobody polling, or else the lane's goroutine, which sleeps until the queue
// that was armed has something.
//
// A call that found nothing for itself goes by
//
//  1. Wait. It polls if that says so, for all, wakes whom it finds something for, and
//     tells Found. It stops when it has what it waited for, or gives up.
//  2. If another polls: look once more, since that one may have found it before Wait, and
//     then sleep until woken or until the time is up.
//  3. Leave, in every case and however it ends. The baton may have been handed to it
//     meanwhile; then whoever Leave names is to be woken to poll, or nobody waits and the
//     queue is armed and polled once more before Rest leaves it to the lane's goroutine.
//
// A call that has polled long enough and sleeps on arms the queue, polls once more, and calls
// Rest as well. Whoever finds something for it wakes it; then it goes by 1 again.
//
// The lane's goroutine asks Event when the queue has woken it, or for no reason, and polls if
// that says so. Then it goes by 3 with the name Goroutine.
//
// Nobody holds the baton only while the queue is armed or its event is under way, so a
// completion is always somebody's. Baton has no lock: whoever guards it holds its lock over
// one call of a method, never over a poll.
type Baton struct {
	holder  Waiter
	waiting waiters // would poll
	rung    bool    // the queue was armed and has rung while somebody held the baton
}

// Goroutine is the lane's own goroutine as a Waiter.
const Goroutine Waiter = 1<<32 - 1

// Wait begins a wait, and reports whether w is to poll. Otherwise another does, and w may
// sleep after it has looked once more.
func (b *Baton) Wait(w Waiter) (poll bool) {
	if b.holder == 0 {
		b.holder = w
		return true
	}
	b.waiting.push(w)
	return false
}

// Holds reports whether w is to poll: the baton may have been handed to it in its sleep.
func (b *Baton) Holds(w Waiter) bool { return b.holder == w }

// Holder returns who has the baton. 0 says that the lane is its goroutine's, which sleeps.
func (b *Baton) Holder() Waiter { return b.holder }

// Alone reports whether nobody waits who would poll.
func (b *Baton) Alone() bool { return b.waiting.empty() }

// Found says that w was found something for, so that the baton is not handed to it, which is
// about to leave. Whoever found it wakes it.
func (b *Baton) Found(w Waiter) { b.waiting.remove(w) }

// Leave ends the wait of w. If next is not 0 the baton is handed to it, and it has to be
// woken. If arm is true, nobody waits: arm the queue, poll it once more, and call Rest if
// there was nothing; if there was something, see to it and call Leave again.
func (b *Baton) Leave(w Waiter) (next Waiter, arm bool) {
	if b.holder != w {
		b.waiting.remove(w)
		return 0, false
	}
	if b.pass() {
		return b.holder, false
	}
	b.rung = false // what has rung is found by the poll that follows
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

// Rest leaves the lane to its goroutine, after w has armed the queue and found nothing in
// it. If next is not 0, somebody has begun to wait meanwhile and has to be woken to poll. If
// again is true, the queue has rung meanwhile: arm and poll once more.
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

// Event says that the queue has woken the lane's goroutine, and reports whether it is to
// poll. If not, somebody else does, who may have polled for the last time before: Rest tells
// it to look once more.
func (b *Baton) Event() (poll bool) {
	if b.holder != 0 {
		b.rung = true
		return false
	}
	b.holder = Goroutine
	return true
}
