package link

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A waiter is one direction of a stream, in which one call at a time waits.
type waiter struct {
	wakeup    chan struct{} // holds a token while there is a reason to look
	woken     atomic.Bool   // there is something for this call
	waiting   atomic.Bool
	deadline  atomic.Int64 // since epoch, 0: none
	timer     *time.Timer  // made by the first call that parks with a deadline
	inChannel atomic.Bool  // the call sleeps in the lane's channel
	e         *laneEnd
	number    lane.Waiter // while a call waits; the lane's lock guards it
	pays      spinBudget
	busyPoll  atomic.Int64  // of SetBusyPoll
	spins     atomic.Uint64 // waits that ended while polling
	parks     atomic.Uint64 // and sleeps
}

// epoch is what deadlines count from.
var epoch = time.Now()

// longPast is a deadline that has passed.
var longPast = time.Unix(1, 0)

// found tells the call that waits, if one does, that there is something for it. The lane's
// lock is held.
func (w *waiter) found(e *laneEnd) {
	if w.number != 0 {
		e.baton.Found(w.number)
		w.wake()
	}
}

// wake has a call look at what it waits for.
func (w *waiter) wake() {
	if w.waiting.Load() {
		w.woken.Store(true)
		w.kick()
	}
}

// kick ends a sleep: there is something, or the baton was handed over.
func (w *waiter) kick() {
	if w.inChannel.Load() {
		w.e.stir()
	}
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// setDeadline is a store, and a word to the call that waits.
func (w *waiter) setDeadline(t time.Time) {
	at := int64(0)
	if !t.IsZero() {
		if at = int64(t.Sub(epoch)); at == 0 {
			at = 1
		}
	}
	w.deadline.Store(at)
	w.wake()
}

// expired reports whether the deadline has passed.
func (w *waiter) expired() bool {
	at := w.deadline.Load()
	return at != 0 && int64(time.Since(epoch)) >= at
}

// time is the deadline, the zero time if there is none.
func (w *waiter) time() time.Time {
	if at := w.deadline.Load(); at != 0 {
		return epoch.Add(time.Duration(at))
	}
	return time.Time{}
}

// sleep parks until somebody kicks, or the deadline.
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

// wait waits until there may be something for w, whose call looks again then. ready is asked
// with mu held whether there is already. It fails when the deadline has passed.
//
// It goes by lane.Baton: poll for all if nobody does; else sleep until somebody wakes this
// call. Who has polled for long enough keeps the baton and goes on in the channel, which wakes
// it when there is something to poll: so a stream alone on its lane is woken directly.
func (e *laneEnd) wait(w *waiter, ready func() bool) error {
	e.mu.Lock()
	if e.err != nil || ready() {
		e.mu.Unlock()
		return nil
	}
	w.woken.Store(false)
	select {
	case <-w.wakeup:
	default:
	}
	w.waiting.Store(true)
	e.tasks.Add(1)
	poll := e.takeSeat(w)
	if !poll {
		e.enter(w)
		poll = e.baton.Wait(w.number)
	}
	e.mu.Unlock()
	soon := false // found by polling, or after a brief sleep: the next call will come soon
	for !w.woken.Load() && !w.expired() && !e.failed.Load() {
		if poll {
			if soon = e.spin(w); soon {
				w.spins.Add(1)
				break
			}
		}
		w.parks.Add(1)
		began := time.Now()
		if poll {
			e.sleepInChannel(w)
		} else {
			w.sleep()
		}
		slept := time.Since(began)
		w.pays.slept(slept)
		soon = slept <= maxTrip
		if poll {
			continue // it has the baton still
		}
		e.mu.Lock()
		poll = e.baton.Holds(w.number)
		e.mu.Unlock()
		if !poll {
			break
		}
	}
	e.mu.Lock()
	w.waiting.Store(false)
	if !soon || !e.keepSeat(w) {
		n := w.number
		w.number, e.calls[n-1] = 0, nil
		e.mu.Unlock()
		e.leave(n)
	} else {
		e.mu.Unlock()
	}
	e.tasks.Done()
	if !w.woken.Load() && w.expired() {
		return os.ErrDeadlineExceeded
	}
	return nil
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

// sleepInChannel parks the call that has the baton until there is something for it, or for no
// reason. It takes in what has come for others meanwhile, as if it polled.
func (e *laneEnd) sleepInChannel(w *waiter) {
	lookAtProcs()
	e.sleeper = w
	if at := w.deadline.Load(); at != e.sleepEnd {
		e.sleepEnd = at
		_ = e.p.channel.SetWriteDeadline(w.time()) // fails if it is closed: so does the wait
	}
	err := e.p.channel.WaitWrite(e.look)
	w.inChannel.Store(false)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded): // the call's, or stir's
		e.sleepEnd = -1
	default:
		e.fail(err)
	}
}

// lookAgain polls for the sleeper, and arms the queue and polls once more if that has found
// nothing for it.
func (e *laneEnd) lookAgain() bool {
	w := e.sleeper
	w.inChannel.Store(false) // what it finds itself need not wake it
	found := func() bool {
		for e.poll() {
		}
		return w.woken.Load() || e.failed.Load()
	}
	if found() {
		return true // with a queue that is not armed, whose next messages wake nobody
	}
	e.arm()
	if found() {
		return true
	}
	w.inChannel.Store(true)
	return w.woken.Load() || e.failed.Load()
}

// stir ends the sleep in the channel.
func (e *laneEnd) stir() {
	_ = e.p.channel.SetWriteDeadline(longPast) // fails if it is closed, which ends it as well
}

// rest tells the lane's goroutine that nobody has the baton.
func (e *laneEnd) rest() {
	select {
	case e.rested <- struct{}{}:
	default:
	}
}

// leave ends a wait, or a look of the lane's goroutine: the baton goes to whoever waits, or
// the queue is armed and left to the goroutine. Nobody has the number any more.
func (e *laneEnd) leave(n lane.Waiter) {
	defer func() {
		if n != lane.Goroutine {
			e.mu.Lock()
			e.unused = append(e.unused, n)
			e.mu.Unlock()
		}
	}()
	for {
		e.mu.Lock()
		next, arm := e.baton.Leave(n)
		e.hand(next)
		e.mu.Unlock()
		if !arm {
			return
		}
		e.arm()
		if e.poll() {
			continue
		}
		e.mu.Lock()
		next, again := e.baton.Rest(n)
		e.hand(next)
		e.mu.Unlock()
		if !again {
			if next == 0 {
				e.rest()
			}
			return
		}
	}
}

// hand wakes whom the baton was handed to. A call that is about to leave has no need of that:
// it passes the baton on.
func (e *laneEnd) hand(next lane.Waiter) {
	if next == 0 {
		return
	}
	if w := e.calls[next-1]; w != nil {
		w.kick()
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
		e.fail(err)
	}
}

const (
	// maxSpin is how long a call polls before it sleeps: longer than a wake-up takes.
	maxSpin = 50 * time.Microsecond
	// pollsPerLook is how often it polls between two looks at the clock, and lets others run.
	pollsPerLook = 32
	// maxTrip is the longest sleep that may be taken for the round trip of two sleepers; after
	// a longer one the peer is taken to be slow or idle.
	maxTrip = 4 * maxSpin
	// maxMisses bounds for how many such sleeps nobody polls, 2^maxMisses/2.
	maxMisses = 7
)

// spinBudget decides whether to poll before sleeping: until that finds nothing; then again
// after a short sleep or, if it keeps finding nothing, after ever more of them.
type spinBudget struct {
	off    bool
	misses uint8
	skip   uint8 // short sleeps to let pass
}

func (b *spinBudget) hit() { b.misses = 0 }

func (b *spinBudget) miss() {
	b.off = true
	b.misses = min(b.misses+1, maxMisses)
	b.skip = 1<<(b.misses-1) - 1
}

// slept: a sleep took so long.
func (b *spinBudget) slept(d time.Duration) {
	switch {
	case d > maxTrip:
	case b.skip > 0:
		b.skip--
	default:
		b.off = false
	}
}

// spinning counts the goroutines of the process that poll just now. More of them than
// processors would take the time from those they wait for.
var spinning, procs atomic.Int32

func init() { lookAtProcs() }

func lookAtProcs() { procs.Store(int32(runtime.GOMAXPROCS(0))) }

// spin polls for as long as that pays, and reports whether there is something for w.
func (e *laneEnd) spin(w *waiter) bool {
	e.poll()
	if w.woken.Load() {
		return true
	}
	limit := time.Duration(w.busyPoll.Load())
	if limit == 0 && !w.pays.off {
		limit = maxSpin
	}
	if limit <= 0 {
		return false
	}
	defer spinning.Add(-1)
	if n := procs.Load(); spinning.Add(1) > n || n == 1 {
		return false
	}
	for began := time.Now(); ; runtime.Gosched() {
		for range pollsPerLook {
			e.poll()
			if w.woken.Load() {
				w.pays.hit()
				return true
			}
		}
		if time.Since(began) > limit || w.expired() || e.failed.Load() {
			w.pays.miss()
			return false
		}
	}
}
