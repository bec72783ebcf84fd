package link

import (
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A waiter is one direction of a stream, in which one call at a time waits.
type waiter struct {
	wakeup    chan struct{} // holds a token while there is a reason to check; nil before a call has parked
	state     atomic.Uint32 // waiterIdle, waiterWaits or waiterWoken
	inChannel atomic.Bool   // the call sleeps in the lane's channel
	deadline  atomic.Int64  // since epoch, 0: none
	timer     *time.Timer   // made by the first call that parks with a deadline
	number    lane.Waiter   // while a call waits; the lane's lock guards it
	inside    bool          // a call is between begin and end; the lane's lock guards it
	delay     time.Duration // that the call leaves the queue alone before it polls
	ahead     uint64        // bytes that the peer may have to read before it answers the call that waits
	pays      spinBudget
	busyPoll  atomic.Int64  // of SetBusyPoll
	spins     uint64        // waits that ended while polling; the lane's lock guards it
	parks     atomic.Uint64 // and sleeps
}

const (
	waiterIdle  = iota // no call waits
	waiterWaits        // one does
	waiterWoken        // there was something for the last one that did
)

func (w *waiter) waiting() bool { return w.state.Load() == waiterWaits }
func (w *waiter) woken() bool   { return w.state.Load() == waiterWoken }

// epoch is what deadlines count from.
var epoch = time.Now()

// longPast is a deadline that has passed.
var longPast = time.Unix(1, 0)

// found tells the call that waits, if one does, that there is something for it. The lane's
// lock is held.
func (w *waiter) found(e *laneEnd) {
	if w.number != 0 {
		w.tell(e)
	}
}

// tell is found for a call that waits.
func (w *waiter) tell(e *laneEnd) {
	switch {
	case e.polling.role.Holds(w.number): // it polls, or sleeps in the channel
		w.state.Store(waiterWoken)
		if w.inChannel.Load() {
			e.endChannelSleep()
		}
	default:
		e.polling.role.Found(w.number)
		w.wake(e)
	}
}

// begin records that a call is about to wait, and whether it may park. mu is held.
func (w *waiter) begin(e *laneEnd, parks bool) {
	switch {
	case !parks:
	case w.wakeup == nil:
		w.wakeup = e.polling.wakeups.take()
	default:
		dropToken(w.wakeup)
	}
	w.inside = true
	w.state.Store(waiterWaits)
}

// end ends what begin began. mu is held.
func (w *waiter) end() {
	w.inside = false
	if !w.woken() {
		w.state.Store(waiterIdle)
	}
}

// release is for a stream that is closed. mu is held.
func (w *waiter) release(e *laneEnd) {
	if w.wakeup != nil && !w.inside {
		e.polling.wakeups.give(w.wakeup)
		w.wakeup = nil
	}
}

// wakeups are channels for calls that park, each with room for a token, of streams that were closed:
// many streams live for one exchange. mu guards them.
type wakeups []chan struct{}

// spareWakeups is how many a lane keeps.
const spareWakeups = 64

func (w *wakeups) take() chan struct{} {
	n := len(*w)
	if n == 0 {
		return make(chan struct{}, 1)
	}
	c := (*w)[n-1]
	*w = (*w)[:n-1]
	return c
}

func (w *wakeups) give(c chan struct{}) {
	dropToken(c)
	if len(*w) < spareWakeups {
		*w = append(*w, c)
	}
}

// dropToken takes a token out that nobody has waited for.
func dropToken(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// wake has a call on a lane check what it waits for. mu is held.
func (w *waiter) wake(e *laneEnd) {
	if w.inside {
		w.state.Store(waiterWoken)
		w.unpark(e)
	}
}

// unpark ends a sleep: there is something, or the poll role was handed over. mu is held.
func (w *waiter) unpark(e *laneEnd) {
	if w.inChannel.Load() {
		e.endChannelSleep()
	}
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// setDeadline is a store, and a word to the call that waits, for which it takes mu.
func (w *waiter) setDeadline(e *laneEnd, t time.Time) {
	at := int64(0)
	if !t.IsZero() {
		if at = int64(t.Sub(epoch)); at == 0 {
			at = 1
		}
	}
	w.deadline.Store(at)
	if w.waiting() {
		e.mu.Lock()
		w.wake(e)
		e.mu.Unlock()
	}
}

// expired reports whether the deadline has passed.
func (w *waiter) expired() bool {
	at := w.deadline.Load()
	return at != 0 && int64(time.Since(epoch)) >= at
}

// deadlineTime is a waiter's deadline as a time, the zero time if there is none.
func deadlineTime(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(at))
}

// sleep parks until somebody unparks it, or the deadline.
func (w *waiter) sleep() {
	at := w.deadline.Load()
	if at == 0 {
		<-w.wakeup
		return
	}
	left := time.Duration(at) - time.Since(epoch)
	if left <= 0 {
		return
	}
	if w.timer == nil {
		w.timer = time.NewTimer(left)
	} else {
		w.timer.Reset(left)
	}
	select {
	case <-w.wakeup:
		w.timer.Stop()
	case <-w.timer.C:
	}
}
