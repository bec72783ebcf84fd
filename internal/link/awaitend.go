package link

import (
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A program may end as soon as it has closed its last stream, and its device with it. Within a host that
// loses nothing that was posted, over a network what the peer's device has not confirmed. And the end
// of a stream takes a place in the peer's ring of records, which may have none while the peer has got no
// processor for as long as many streams come and go. So Close can wait.

const (
	// endWaitTime bounds for how long the closed streams of a dialer's lane wait together, in time in
	// which this process runs, until one of their ends is safe.
	endWaitTime = 10 * time.Second
	// acceptedWaitTime is the same for a listener's lane: a server mostly goes on, and a client that
	// is out of reach is not to keep it.
	acceptedWaitTime = 100 * time.Millisecond
)

// AwaitEnd waits until the end of a closed stream, and so all that was written, is with the peer's
// device, whatever becomes of this process. Where the peer takes in nothing at all it waits for a
// while only.
func (h *Stream) AwaitEnd() {
	s := h.now()
	e := s.e
	patience := endWaitTime
	if e.role == lane.RoleListener {
		patience = acceptedWaitTime
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !s.endPending() {
		return
	}
	if e.givenUp != nil && !e.givenUp.endPending() {
		e.endsBy, e.givenUp = time.Time{}, nil // the peer takes something in again
	}
	if e.endsBy.IsZero() {
		e.endsBy = time.Now().Add(patience)
	}
	w := &endWait{s: s}
	w.call.pays = e.endPays
	timer := runtimer.After(time.Until(e.endsBy), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		w.late = true
		w.call.wake(e)
	})
	defer timer.Stop()
	e.endWaits = append(e.endWaits, w)
	for !w.over() {
		if e.awaited() {
			e.blocks.Store(true)
			e.unseen.Store(true)
		}
		_ = e.wait(&w.call, w.over) // it has no deadline but late
	}
	if e.endPays = w.call.pays; w.late {
		e.givenUp = s
	}
	e.endWaits = slices.DeleteFunc(e.endWaits, func(o *endWait) bool { return o == w })
}

// endPending reports whether a closed stream has an end that would be lost with this process. mu is
// held.
func (s *stream) endPending() bool {
	e := s.e
	if !s.closed || e.err != nil || s.moving() {
		return false
	}
	return s.st.EndUnsent() || !e.p.sameHost && e.sq.completed < s.said
}

// An endWait is a call of AwaitEnd.
type endWait struct {
	s    *stream
	call waiter
	late bool
}

// over reports whether there is nothing to wait for any more. The lane may have forgotten the stream
// by then. mu is held.
func (w *endWait) over() bool { return w.late || !w.s.endPending() }

// endsSafe tells the calls of AwaitEnd that have nothing to wait for any more. mu is held.
func (e *laneEnd) endsSafe() {
	for _, w := range e.endWaits {
		if !w.s.endPending() {
			e.endsBy = time.Time{} // the peer takes something in
			w.call.found(e)
		}
	}
}
