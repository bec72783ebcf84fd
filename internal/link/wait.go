package link

import (
	"errors"
	"os"
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
	case e.pollRole.Holds(w.number): // it polls, or sleeps in the channel
		w.state.Store(waiterWoken)
		if w.inChannel.Load() {
			e.endChannelSleep()
		}
	default:
		e.pollRole.Found(w.number)
		w.wake(e)
	}
}

// begin records that a call is about to wait, and whether it may park. mu is held.
func (w *waiter) begin(e *laneEnd, parks bool) {
	switch {
	case !parks:
	case w.wakeup == nil:
		w.wakeup = e.wakeups.take()
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
		e.wakeups.give(w.wakeup)
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

// wait waits until there may be something for w, whose call looks again then. ready says
// whether there is already. It fails when the deadline has passed. mu is held when it is called
// and when it returns.
//
// It goes by lane.PollRole: poll for all if nobody does; else sleep until somebody wakes this
// call. Who has polled for long enough keeps the poll role and goes on in the channel, which wakes
// it when there is something to poll: so a stream alone on its lane is woken directly.
func (e *laneEnd) wait(w *waiter, ready func() bool) error {
	if e.err != nil || ready() {
		return nil
	}
	e.waits.n++
	poll := e.takeKept(w)
	if !poll {
		e.enter(w)
		poll = e.pollRole.Wait(w.number)
	}
	w.begin(e, !poll) // who has the poll role sleeps in the channel
	if !poll {
		w.delay = 0 // a role that is handed over later is of others as well
	} else if e.unseen.Load() {
		e.unseen.Store(false) // who polls arms the queues before it sleeps
	}
	e.mu.Unlock()
	e.startWorker()               // of what the call has taken in before it waits
	locked, slept := false, false // locked: by spin
	for !w.woken() && !e.over(w) {
		if poll {
			if locked = e.spin(w); locked {
				w.spins++
				break
			}
		}
		w.parks.Add(1)
		slept = true
		began := time.Now()
		if poll {
			e.sleepInChannel(w)
		} else {
			w.sleep()
		}
		took := time.Since(began)
		w.pays.slept(took)
		if poll {
			e.pays.slept(took)
			continue // it has the poll role still
		}
		e.mu.Lock()
		poll = e.pollRole.Holds(w.number)
		e.mu.Unlock()
		if !poll {
			break
		}
	}
	if !locked {
		e.mu.Lock()
	}
	w.end()
	if !w.woken() || !e.keepRole(w, slept) {
		n := w.number
		w.number, e.calls[n-1] = 0, nil
		e.mu.Unlock()
		e.leave(n)
		e.mu.Lock()
	}
	e.waitEnds()
	if !w.woken() && w.expired() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// waits are the calls that wait. Most calls do, so they are counted, under the lock that they have in any
// case, and are no tasks before teardown asks for the last of them. The lane's lock guards it.
type waits struct {
	n    int
	task bool // as long as there is one
}

// waitEnds takes a call that waits out of the count. mu is held.
func (e *laneEnd) waitEnds() {
	if e.waits.n--; e.waits.n == 0 && e.waits.task {
		e.waits.task = false
		e.tasks.Done()
	}
}

// waitsAreTasks has tasks last as long as calls wait. The lane has ended, so there come no more.
func (e *laneEnd) waitsAreTasks() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits.task = e.waits.n > 0; e.waits.task {
		e.tasks.Add(1)
	}
}

// enter gives w a number.
func (e *laneEnd) enter(w *waiter) {
	if n := len(e.unused); n > 0 {
		w.number, e.unused = e.unused[n-1], e.unused[:n-1]
	} else {
		e.calls = append(e.calls, nil)
		w.number = lane.Waiter(len(e.calls))
	}
	e.calls[w.number-1] = w
}

// sleepInChannel parks the call that has the poll role until there is something for it, or for no
// reason. It takes in what has come for others meanwhile, as if it polled.
func (e *laneEnd) sleepInChannel(w *waiter) {
	lookAtProcs()
	e.sleeper, e.armed = w, 0
	if at := w.deadline.Load(); at != e.sleepEnd {
		e.sleepEnd = at
		_ = e.p.channel.SetWriteDeadline(deadlineTime(at)) // fails if it is closed: so does the wait
	}
	err := e.p.channel.WaitWrite(e.recheck)
	w.inChannel.Store(false)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded): // the call's, or endChannelSleep's
		e.sleepEnd = -1
	default:
		e.end(err)
	}
}

// pollAndArm polls for the sleeper, for others as long as that pays, and arms the queue and polls once
// more if that has found nothing for it.
func (e *laneEnd) pollAndArm() bool {
	w := e.sleeper
	w.inChannel.Store(false) // what it finds itself need not wake it
	if e.armed != 0 {
		e.othersPay.slept(time.Since(epoch) - e.armed)
		e.armed = 0
	}
	took := false
	found := func() bool {
		took = false
		for more := true; more && !w.woken() && !w.expired(); {
			var some bool
			some, more = e.pollAny()
			took = took || some
		}
		return w.woken() || e.over(w)
	}
	for again, spun := true, false; again; again = spun {
		if found() {
			return true // with a queue that is not armed, whose next messages wake nobody
		}
		spun = (took || spun) && e.spinForOthers(w)
	}
	e.arm()
	if found() {
		return true
	}
	if !took { // else an event is under way already
		e.armed = time.Since(epoch)
	}
	w.inChannel.Store(true)
	return w.woken() || e.failed.Load() || e.pollWaiters.any()
}

// endChannelSleep ends the sleep in the channel.
func (e *laneEnd) endChannelSleep() {
	_ = e.p.channel.SetWriteDeadline(longPast) // fails if it is closed, which ends it as well
}

// rest tells the lane's goroutine that nobody has the poll role.
func (e *laneEnd) rest() {
	select {
	case e.rested <- struct{}{}:
	default:
	}
}

// leave ends a wait, or a poll of the lane's goroutine: the poll role goes to whoever waits, or
// the queue is armed and left to the goroutine. Nobody has the number any more.
//
// Whoever leaves has something else to do. While others keep the queue full this is left to a
// goroutine, until somebody waits.
func (e *laneEnd) leave(n lane.Waiter) {
	for range maxBatches {
		if e.leaveNow(n) {
			return
		}
	}
	e.tasks.Add(1)
	go func() {
		defer e.tasks.Done()
		for !e.leaveNow(n) {
		}
	}()
}

// maxBatches bounds how many batches of others' messages a call takes in for them before it goes
// its way.
const maxBatches = 4

// leaveNow leaves unless something is found meanwhile, and reports whether it has.
func (e *laneEnd) leaveNow(n lane.Waiter) bool {
	e.mu.Lock()
	next, arm := e.pollRole.Leave(n)
	e.hand(next)
	if !arm {
		e.forget(n)
	}
	e.mu.Unlock()
	if !arm {
		return true
	}
	e.arm()
	if some, _ := e.pollLocked(); some { // the queue may not be armed any more
		e.mu.Unlock()
		e.startWorker()
		return false
	}
	return !e.restOf(n)
}

// restOf leaves the lane to its goroutine, and reports whether to poll again. The queue is
// armed, and was found empty since.
func (e *laneEnd) restOf(n lane.Waiter) (again bool) {
	e.mu.Lock()
	next, again := e.pollRole.Rest(n)
	e.hand(next)
	if !again {
		e.forget(n)
	}
	e.mu.Unlock()
	if !again && next == 0 {
		e.rest()
	}
	return again
}

// forget has a number used by the next call.
func (e *laneEnd) forget(n lane.Waiter) {
	if n != lane.Goroutine {
		e.unused = append(e.unused, n)
	}
}

// hand wakes whom the poll role was handed to. A call that is about to leave has no need of that:
// it passes the poll role on.
func (e *laneEnd) hand(next lane.Waiter) {
	if next == 0 {
		return
	}
	if w := e.calls[next-1]; w != nil {
		w.unpark(e)
	}
}

// arm has the queue wake the lane's goroutine: for what the peer says is worth it and, if
// somebody waits for the send queue, for the completion of a request.
func (e *laneEnd) arm() {
	if e.failed.Load() {
		return
	}
	err := e.p.recvCQ.ReqNotify(e.p.solicited)
	if err == nil && e.blocks.Load() {
		err = e.p.sendCQ.ReqNotify(false)
	}
	if err != nil {
		e.end(err)
	}
}
