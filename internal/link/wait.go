package link

import (
	"errors"
	"os"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

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
	e.polling.waits.n++
	poll := e.takeKept(w)
	if !poll {
		e.polling.enter(w)
		poll = e.polling.role.Wait(w.number)
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
			e.polling.pays.slept(took)
			continue // it has the poll role still
		}
		e.mu.Lock()
		poll = e.polling.role.Holds(w.number)
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
		w.number, e.polling.calls[n-1] = 0, nil
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
	if e.polling.waits.n--; e.polling.waits.n == 0 && e.polling.waits.task {
		e.polling.waits.task = false
		e.tasks.Done()
	}
}

// waitsAreTasks has tasks last as long as calls wait. The lane has ended, so there come no more.
func (e *laneEnd) waitsAreTasks() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.polling.waits.task = e.polling.waits.n > 0; e.polling.waits.task {
		e.tasks.Add(1)
	}
}

// enter gives w a number.
func (po *polling) enter(w *waiter) {
	if n := len(po.unused); n > 0 {
		w.number, po.unused = po.unused[n-1], po.unused[:n-1]
	} else {
		po.calls = append(po.calls, nil)
		w.number = lane.Waiter(len(po.calls))
	}
	po.calls[w.number-1] = w
}

// sleepInChannel parks the call that has the poll role until there is something for it, or for no
// reason. It takes in what has come for others meanwhile, as if it polled.
func (e *laneEnd) sleepInChannel(w *waiter) {
	lookAtProcs()
	e.polling.sleeper, e.polling.armed = w, 0
	if at := w.deadline.Load(); at != e.polling.sleepEnd {
		e.polling.sleepEnd = at
		_ = e.p.channel.SetWriteDeadline(deadlineTime(at)) // fails if it is closed: so does the wait
	}
	err := e.p.channel.WaitWrite(e.polling.recheck)
	w.inChannel.Store(false)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded): // the call's, or endChannelSleep's
		e.polling.sleepEnd = -1
	default:
		e.end(err)
	}
}

// pollAndArm polls for the sleeper, for others as long as that pays, and arms the queue and polls once
// more if that has found nothing for it.
func (e *laneEnd) pollAndArm() bool {
	w := e.polling.sleeper
	w.inChannel.Store(false) // what it finds itself need not wake it
	if e.polling.armed != 0 {
		e.polling.othersPay.slept(time.Since(epoch) - e.polling.armed)
		e.polling.armed = 0
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
		e.polling.armed = time.Since(epoch)
	}
	w.inChannel.Store(true)
	return w.woken() || e.failed.Load() || e.pollWaiters.any()
}

// endChannelSleep ends the sleep in the channel.
func (e *laneEnd) endChannelSleep() {
	_ = e.p.channel.SetWriteDeadline(longPast) // fails if it is closed, which ends it as well
}

// rest tells the lane's goroutine that nobody has the poll role.
func (po *polling) rest() {
	select {
	case po.rested <- struct{}{}:
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
	next, arm := e.polling.role.Leave(n)
	e.hand(next)
	if !arm {
		e.polling.forget(n)
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
	next, again := e.polling.role.Rest(n)
	e.hand(next)
	if !again {
		e.polling.forget(n)
	}
	e.mu.Unlock()
	if !again && next == 0 {
		e.polling.rest()
	}
	return again
}

// forget has a number used by the next call.
func (po *polling) forget(n lane.Waiter) {
	if n != lane.Goroutine {
		po.unused = append(po.unused, n)
	}
}

// hand wakes whom the poll role was handed to. A call that is about to leave has no need of that:
// it passes the poll role on.
func (e *laneEnd) hand(next lane.Waiter) {
	if next == 0 {
		return
	}
	if w := e.polling.calls[next-1]; w != nil {
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
