package link

import (
	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// A note is what a listener's lane tells of its places.
type note uint8

const (
	noteWanted   note = iota // n dials of the peer wait
	noteGranted              // n places that were due stand
	noteFailed               // n places that were due do not
	noteDenied               // likewise, for lack of memory
	noteNoStore              // for lack of memory or of ports, and they were for the dialer's store
	noteNoPorts              // n that are for dials do not, for lack of ports
	noteRetry                // there may be memory or ports again
	noteTaken                // a stream was opened with one
	noteBack                 // one was given back
	noteReleased             // an id may be used again
	noteLeft                 // there are none any more
	noteFinal                // no stream is opened any more
)

// note tells the Listener, and does what it says. mu is held.
func (lp *listenerPart) note(what note, n int) {
	e := lp.e
	if lp.share != nil {
		lp.carryOut(e.owner.note(e, what, n))
	}
}

// carryOut has places granted and asks for others back. mu is held.
func (lp *listenerPart) carryOut(o allotment) {
	e := lp.e
	if e.err != nil || e.away {
		return
	}
	if o.grant > 0 {
		e.work.grant += o.grant
		e.work.wanted += o.wanted
		e.hasWork.Store(true)
	}
	if o.recall > 0 {
		e.state.Recall(o.recall)
		lp.watchRecall()
	}
}

// idsLeft is how many places more there are ids for. mu is held.
func (lp *listenerPart) idsLeft() int {
	e := lp.e
	return lp.ids.len() - e.work.grant - lp.making
}

// note keeps account of the places of a lane.
func (l *Listener) note(e *laneEnd, what note, n int) allotment {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, s := &l.backlog, e.listener.share
	s.ids = e.listener.idsLeft() - s.order.grant
	switch what {
	case noteWanted:
		b.wanted(s, n)
	case noteGranted:
		b.granted(s, n)
	case noteFailed:
		b.failed(s, n)
	case noteDenied:
		b.denied(s, n)
	case noteNoStore:
		b.storeDenied(s, n)
	case noteNoPorts:
		b.noPorts(s, n)
	case noteRetry:
		b.retry(s)
	case noteTaken:
		b.taken(s)
	case noteBack:
		b.back(s)
	case noteReleased:
		b.released(s)
	case noteLeft:
		b.leave(s)
	case noteFinal:
		l.left(e)
	}
	o := b.do(s)
	l.feed()
	return o
}

// feed sees that lanes do what the backlog says, on a goroutine of its own, as the locks of
// other lanes are held by who calls. mu is held.
func (l *Listener) feed() {
	if l.feeding {
		return
	}
	if s := l.backlog.next(); s != nil {
		l.feeding = true
		go l.feedAll(s)
	}
}

func (l *Listener) feedAll(s *share) {
	for s != nil {
		e := s.e
		e.mu.Lock()
		l.mu.Lock()
		o := l.backlog.do(s)
		l.mu.Unlock()
		e.listener.carryOut(o)
		if e.err == nil {
			e.settle()
		}
		e.mu.Unlock()
		e.startWorker()
		l.mu.Lock()
		s = l.backlog.next()
		l.feeding = s != nil
		l.mu.Unlock()
	}
}

// recalls sees that a dialer answers RECALL. The lane's lock guards it.
type recalls struct {
	went  int // places that were taken or given back, ever
	due   int // how many it has to be when the timer fires
	timer *runtimer.Timer
}

func (r *recalls) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// watchRecall ends the lane if its dialer does not answer in time. mu is held.
func (lp *listenerPart) watchRecall() {
	e := lp.e
	r := &lp.recalls
	if n := e.state.Recalled(); n > 0 && r.timer == nil {
		r.due = r.went + n
		r.timer = runtimer.After(e.cfg.RecallTime, lp.recallLate)
	}
}

func (lp *listenerPart) recallLate() {
	e := lp.e
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &lp.recalls
	r.timer = nil
	switch {
	case e.err != nil || e.role != lane.RoleListener || e.state.Recalled() == 0:
	case r.went < r.due:
		e.failLocked(e.state.KeptPlaces())
	default: // places that were asked back later
		lp.watchRecall()
	}
}
