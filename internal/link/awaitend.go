package link

import (
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A program may end as soon as it has closed its last stream. Within a host that loses nothing that
// was posted. But the end of a stream takes a place in the peer's ring of records, and there is none
// while the peer has got no processor for as long as many streams come and go. So a dialer can wait
// until it was posted.

// endWaitTime bounds for how long the closed streams of a lane wait together, in time in which this
// process runs, until the peer has room for the end of one of them.
const endWaitTime = 10 * time.Second

// AwaitEnd waits until the end of a closed stream was posted, at a dialer whose peer is a process of
// this host: if that dies now the end arrives. Where the peer takes in nothing at all it waits for a
// while only.
func (h *Stream) AwaitEnd() {
	s := h.now()
	e := s.e
	if e.role != lane.RoleDialer || !e.p.sameHost {
		return
	}
	e.mu.Lock()
	if !s.endUnsent() {
		e.mu.Unlock()
		return
	}
	if e.endsBy.IsZero() {
		e.endsBy = time.Now().Add(endWaitTime)
	}
	left := time.Until(e.endsBy)
	sent, late := make(chan struct{}), make(chan struct{})
	e.endWaits = append(e.endWaits, endWait{s, sent})
	e.giveUpKept() // no call would take in what the peer gives back
	e.mu.Unlock()
	e.startWorker()
	timer := runtimer.After(left, func() { close(late) })
	defer timer.Stop()
	select {
	case <-sent:
	case <-late:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.endWaits = slices.DeleteFunc(e.endWaits, func(w endWait) bool { return w.sent == sent })
	}
}

// endUnsent reports whether a closed stream has an end that is still to be sent. mu is held.
func (s *stream) endUnsent() bool {
	return s.closed && s.e.err == nil && !s.moving() && s.st.EndUnsent()
}

// An endWait is a call of AwaitEnd that waits until sent is closed.
type endWait struct {
	s    *stream
	sent chan struct{}
}

// endsSent ends the waits for which there is nothing to wait any more. The lane may have forgotten
// the stream by then. mu is held.
func (e *laneEnd) endsSent() {
	e.endWaits = slices.DeleteFunc(e.endWaits, func(w endWait) bool {
		if w.s.endUnsent() {
			return false
		}
		close(w.sent)
		return true
	})
}
