package link

import (
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// pollWaiters are calls that wait until somebody has polled: then all that had come when they asked
// is taken in. Only one call polls a lane at a time, so where another has the poll role they wait for
// the next poll that it begins.
type pollWaiters struct {
	asked  atomic.Uint64   // so many, so far
	served atomic.Uint64   // of them
	waits  []chan struct{} // with room for a token
	full   int             // polls that found more than they could take in; the lane's lock guards this and waits
}

// any reports whether a call waits.
func (p *pollWaiters) any() bool { return p.asked.Load() != p.served.Load() }

// begun returns what a poll that begins now has to pass to polled.
func (p *pollWaiters) begun() uint64 { return p.asked.Load() }

// polled ends the waits of those that had asked when a poll began, if that has found all that there
// was, or if so many have passed that others keep the queue full. The lane's lock is held.
func (p *pollWaiters) polled(begun uint64, all bool) {
	if p.full++; !all && p.full < maxBatches {
		return
	}
	p.full = 0
	for p.served.Load() < begun {
		pop(&p.waits) <- struct{}{}
		p.served.Add(1)
	}
}

// pollOnce takes in what has come by now. mu is held when it is called and when it returns.
func (e *laneEnd) pollOnce() {
	if e.pollUnpolled() {
		return
	}
	polled := e.polling.wakeups.take()
	e.pollWaiters.waits = append(e.pollWaiters.waits, polled)
	e.pollWaiters.asked.Add(1)
	if n := e.polling.role.Holder(); n != lane.Goroutine {
		if w := e.polling.calls[n-1]; w != nil && w.inChannel.Load() {
			e.endChannelSleep()
		}
	}
	e.mu.Unlock()
	<-polled
	e.mu.Lock()
	e.polling.wakeups.give(polled)
}

// pollUnpolled is pollOnce where nobody else polls, and reports whether that is so. mu is held when it is
// called and when it returns.
func (e *laneEnd) pollUnpolled() bool {
	away := e.polling.kept.number != 0
	for i := 0; e.pollKept() && i < maxBatches; i++ {
	}
	switch {
	case away || e.err != nil:
	case e.polling.role.Event():
		e.mu.Unlock()
		for i := 0; i < maxBatches && e.poll(); i++ {
		}
		e.leave(lane.Goroutine)
		e.mu.Lock()
	default:
		return false
	}
	return true
}
