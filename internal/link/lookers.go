package link

import (
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// lookers are calls that wait until somebody has polled: whatever had come when they asked was taken
// in. Only one polls a lane at a time, so where another has the poll role it is his poll, the next that
// begins.
type lookers struct {
	asked atomic.Uint64 // so many, so far
	had   atomic.Uint64 // of them
	waits []chan struct{}
	full  int // polls that found more than they could take in; the lane's lock guards this and waits
}

// some reports whether a call waits.
func (l *lookers) some() bool { return l.asked.Load() != l.had.Load() }

// begun returns what a poll that begins now is to tell polled.
func (l *lookers) begun() uint64 { return l.asked.Load() }

// polled ends the waits of those that had asked when a poll began, if that has found all that there
// was, or if so many have passed that others keep the queue full. The lane's lock is held.
func (l *lookers) polled(begun uint64, all bool) {
	if l.full++; !all && l.full < maxBatches {
		return
	}
	l.full = 0
	for l.had.Load() < begun {
		close(pop(&l.waits))
		l.had.Add(1)
	}
}

// lookOnce takes in what has come.
func (e *laneEnd) lookOnce() {
	e.mu.Lock()
	away := e.kept.number != 0
	for i := 0; e.glance() && i < maxBatches; i++ {
	}
	switch {
	case away || e.err != nil:
		e.mu.Unlock()
	case e.pollRole.Event(): // nobody polls
		e.mu.Unlock()
		for i := 0; i < maxBatches && e.poll(); i++ {
		}
		e.leave(lane.Goroutine)
	default:
		done := make(chan struct{})
		e.lookers.waits = append(e.lookers.waits, done)
		e.lookers.asked.Add(1)
		if n := e.pollRole.Holder(); n != lane.Goroutine {
			if w := e.calls[n-1]; w != nil && w.inChannel.Load() {
				e.stir()
			}
		}
		e.mu.Unlock()
		<-done
	}
}
