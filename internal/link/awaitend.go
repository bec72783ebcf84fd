package link

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A program may end as soon as it has closed its last stream, and its device with it. Within a host that
// loses nothing that was posted, over a network what the peer's device has not confirmed. And the end
// of a stream takes a place in the peer's ring of records, which may have none while the peer has got no
// processor for as long as many streams come and go. So Close can wait: as long as there is progress,
// and for a moment without. The moments are times in which this process runs.
const (
	// confirmPatience is for how long a dialer's lane may confirm nothing: for a packet that was lost
	// to be sent again, but not for as long as it takes to find that a host is gone.
	confirmPatience = 2 * time.Second
	// roomPatience is for how long its peer may have no room, as a process that gets no processor, or there may be
	// no listener that takes a stream which is dialled again.
	roomPatience = 10 * time.Second
	// shortPatience is for how long a listener's stream waits in all: a server mostly goes on, and
	// closes many in a row. For impatience after a stream has waited in vain, those of a dialer on other
	// lanes of its link wait no longer, and those of a listener with the same client address not at all.
	shortPatience = 100 * time.Millisecond
	impatience    = time.Second
	// endRounds bounds how often a stream of a dialer is patient, since there was progress.
	endRounds = 6
)

// laneEnds has the closed streams of a lane whose ends the peer, or its device, is to confirm. The lane's lock
// guards it.
type laneEnds struct {
	e       *laneEnd
	posted  uint64      // CLOSE and RESET, so far
	leaving []*stream   // closed, the peer's device has not confirmed their end
	waits   []*endWait  // calls of AwaitEnd
	pays    spinBudget  // of those calls
	stall   endProgress // when one was last awaited in vain
	timer   endsTimer
}

func newLaneEnds(e *laneEnd) laneEnds { return laneEnds{e: e, pays: spinBudget{lasting: true}} }

// AwaitEnd waits until the end of a closed stream, and so all that was written, is with the peer's
// device, whatever becomes of this process. It reports false if the peer takes in nothing, or too
// slowly. A stream that was accepted waits for a moment only, and true is reported in any case.
func (h *Stream) AwaitEnd() bool {
	for range endRounds {
		s := h.now()
		s.e.mu.Lock()
		safe := s.awaitEnd() || s.e.role == lane.RoleListener
		var moves <-chan struct{}
		if s.moving() {
			moves = s.re.moves
		}
		s.e.mu.Unlock()
		s.e.startWorker() // for what it has taken in
		switch {
		case moves == nil:
			return safe
		case !s.e.awaitMoved(moves):
			return false
		}
	}
	return false
}

// awaitMoved waits for a stream of the lane that is being dialled again, since what was written is with this process
// alone until then. It reports false if that takes too long: after one that did it takes a moment for others.
func (e *laneEnd) awaitMoved(moves <-chan struct{}) bool {
	givenUp, patience := e.owner.endsGivenUp(e), roomPatience
	if givenUp.recent() {
		patience = shortPatience
	}
	late := make(chan struct{})
	timer := runtimer.After(patience, func() { close(late) })
	defer timer.Stop()
	select {
	case <-moves:
		return true
	case <-late:
		givenUp.now()
		return false
	}
}

// awaitEnd reports whether the end of s is safe. mu is held.
func (s *stream) awaitEnd() bool {
	e := s.e
	rounds := endRounds
	if e.role == lane.RoleListener {
		rounds = 1
	}
	var w *endWait
	for ; s.endPending(); rounds-- {
		if w == nil { // within a host there is nothing to wait for
			w = &endWait{s: s}
		}
		progress := s.endProgress()
		patience := s.endPatience()
		if rounds == 0 || e.ends.stall == progress || patience == 0 {
			return false
		}
		if w.wait(patience); s.endPending() && s.endProgress() == progress {
			e.ends.stall = progress
			e.owner.endsGivenUp(e).now()
		}
	}
	return true
}

// endPending reports whether a closed stream has an end that would be lost with this process, and that
// the peer has not come before. mu is held.
func (s *stream) endPending() bool {
	e := s.e
	if !s.end.closed || e.err != nil || s.end.cause != nil || s.moving() || s.st.Quiet() {
		return false
	}
	return s.st.EndUnsent() || !e.p.sameHost && e.sq.completed < s.end.said
}

// endProgress is what the lane has achieved of what the end of s waits for. mu is held.
func (s *stream) endProgress() endProgress {
	if s.st.EndUnsent() {
		return endProgress{posted: s.e.ends.posted + 1}
	}
	return endProgress{completed: s.e.sq.completed + 1}
}

// endPatience is how long s waits for progress. mu is held.
func (s *stream) endPatience() time.Duration {
	switch recent := s.e.owner.endsGivenUp(s.e).recent(); {
	case s.e.role == lane.RoleListener && recent:
		return 0
	case s.e.role == lane.RoleListener, recent:
		return shortPatience
	case s.st.EndUnsent():
		return roomPatience
	}
	return confirmPatience
}

// endProgress counts ends that were posted, or requests that have completed, from 1.
type endProgress struct{ posted, completed uint64 }

// An endWait is a call of AwaitEnd.
type endWait struct {
	s    *stream
	call waiter
	late bool
}

// wait waits until the end is safe, for d at most. mu is held.
func (w *endWait) wait(d time.Duration) {
	e := w.s.e
	w.late = false
	timer := runtimer.After(d, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		w.late = true
		w.call.wake(e)
	})
	defer timer.Stop()
	w.call.pays = e.ends.pays
	e.ends.waits = append(e.ends.waits, w)
	for !w.over() {
		if e.awaited() {
			e.blocks.Store(true)
			e.unseen.Store(true)
		}
		_ = e.wait(&w.call, w.over) // it has no deadline but late
	}
	e.ends.pays = w.call.pays
	if w.late {
		e.ends.waits = slices.DeleteFunc(e.ends.waits, func(o *endWait) bool { return o == w })
		e.blocks.Store(e.blocking())
	}
}

// over reports whether there is nothing to wait for any more. The lane may have forgotten the stream
// by then. mu is held.
func (w *endWait) over() bool { return w.late || !w.s.endPending() }

// safe ends the waits for which there is nothing to wait any more. mu is held.
func (le *laneEnds) safe() {
	e := le.e
	le.waits = slices.DeleteFunc(le.waits, func(w *endWait) bool {
		if w.s.endPending() {
			return false
		}
		w.call.found(e)
		return true
	})
}

// endsGivenUp is when a stream of a link, or of a client of a listener, has waited for its end in vain, since
// epoch.
type endsGivenUp struct{ at atomic.Int64 }

func (g *endsGivenUp) now() { g.at.Store(int64(time.Since(epoch))) }

// recent reports whether that was a moment ago.
func (g *endsGivenUp) recent() bool {
	at := g.at.Load()
	return at != 0 && time.Since(epoch)-time.Duration(at) < impatience
}
