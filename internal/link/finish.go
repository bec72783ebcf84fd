package link

import (
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// OnFinish has f called, once, when the stream was closed and the peer's device has all that was
// written, and that this is the end: or never will. The peer's library, which may be stopped, need
// not have seen it, unless it has to say first whether the stream stays with this listener. f must
// not block and must not call the stream: the lane's lock is held. OnFinish is to be called before
// Close.
func (h *Stream) OnFinish(f func()) {
	if s := h.now(); s.re == nil { // before Close only who dials a stream again looks
		s.end.finished = f
		return
	}
	s := h.lockNow()
	defer h.unlock()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.end.finished = f
}

// FinishWithin bounds by d, from now on, for how long a closed stream waits to be finished. What
// was not said by then is said when the peer has room for it again. Until the peer's library
// answers or the lane ends, the id and the rings of the stream are used for nothing else.
func (h *Stream) FinishWithin(d time.Duration) {
	s := h.lockNow()
	defer h.unlock()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.end.finished != nil && s.end.limit == nil {
		s.end.limit = time.AfterFunc(d, func() {
			now := s.lockNow() // it may have been dialled again since
			defer s.unlock()
			now.e.mu.Lock()
			defer now.e.mu.Unlock()
			now.finish()
		})
	}
}

// finish tells who asked for it that the stream is finished. mu is held.
func (s *stream) finish() {
	if s.end.limit != nil {
		s.end.limit.Stop()
	}
	if s.end.finished != nil {
		if s.e.countsFor == s {
			s.e.countFor(nil)
		}
		s.end.summed = true
		s.end.finished()
		s.end.finished = nil
	}
}

// sent records that CLOSE or RESET of a stream was posted. mu is held.
func (le *laneEnds) sent(id lane.ID) {
	e := le.e
	le.posted++
	if s := e.streams.At(id); s != nil {
		s.end.said = e.sq.posted
		s.awaitConfirmation()
	}
}

// awaitConfirmation finishes a closed stream when the peer's device has confirmed its end.
// mu is held.
func (s *stream) awaitConfirmation() {
	e := s.e
	if !s.end.closed || s.end.finished == nil || s.end.said == 0 && e.err == nil {
		return
	}
	if e.err != nil { // it never will be
		if !s.moving() {
			s.finish()
		}
		return
	}
	if e.reap(); s.confirmed() {
		return
	}
	e.ends.leaving = append(e.ends.leaving, s)
	e.blocks.Store(true)
	e.unseen.Store(true)
}

// confirmed finishes the stream if its end was confirmed, and reports whether it was, or need not
// be any more. mu is held.
func (s *stream) confirmed() bool {
	done := s.e.sq.completed >= s.end.said
	if done && s.stays() { // else settled does it, or where the stream is dialled again
		s.finish()
	}
	return done || s.end.finished == nil
}

// confirmed looks which streams need not wait any more. mu is held.
func (le *laneEnds) confirmed() {
	le.leaving = slices.DeleteFunc(le.leaving, (*stream).confirmed)
}
