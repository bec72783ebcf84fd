package link

import (
	"fmt"
	"net"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/internal/runtimer"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// listenerPart is what a listener's end of a lane has beside what both have: the places that it has granted, and how
// it comes and goes. The lane's lock guards it.
type listenerPart struct {
	e *laneEnd

	ids     freeIDs
	ports   lanePorts
	places  lane.Table[memory.Piece] // the rings of places
	making  int                      // places that the worker is about to take ids for
	share   *share                   // of the backlog; nil at a dialer
	recalls recalls
	refused map[lane.ID]struct{} // places whose OPEN was refused, until their release

	coming  *arrival        // until the first message
	timer   *runtimer.Timer // of the first message, and of the dialer's answer to GOAWAY
	patient *time.Timer     // of unannounced streams

	refuses    bool // one that is opened all the same is for whoever has the address now
	final      bool // no stream is opened any more, and the dialer knows which were
	finalNoted bool // and the Listener knows that all of them have come
	unheeded   bool // it has gone away for so long that it waits for no answer
}

// firstMessage records that the dialer has confirmed the connection and has sent a message.
func (lp *listenerPart) firstMessage() {
	e := lp.e
	lp.stopTimer()
	e.owner.heard(e)
	e.work.notify = true
	e.hasWork.Store(true)
}

func (lp *listenerPart) stopTimer() {
	if lp.timer != nil {
		lp.timer.Stop()
	}
}

// end gives up what was granted, with the lane. mu is held.
func (lp *listenerPart) end() {
	lp.e.work.grant, lp.making = 0, 0
	lp.note(noteLeft, 0)
	lp.recalls.stop()
	lp.ports.end()
	lp.stopTimer()
}

// opened makes a stream of a place.
func (lp *listenerPart) opened(st *lane.Stream) {
	e := lp.e
	code := lane.CodePort
	if lp.refuses {
		code = lane.CodeGoingAway
	}
	if lp.refuses || !lp.ports.opened(st.ID(), st.Port()) {
		if err := e.state.Refuse(st, code); err != nil {
			e.failLocked(err)
			return
		}
		// The place comes back now. Its id and its ring do when the dialer releases them, which
		// a hostile one does not.
		if lp.refused == nil {
			lp.refused = map[lane.ID]struct{}{}
		}
		lp.refused[st.ID()] = struct{}{}
		lp.recalls.went++
		lp.note(noteBack, 0)
		return
	}
	p := lp.places.At(st.ID())
	lp.places.Set(st.ID(), memory.Piece{})
	lp.recalls.went++
	s := e.newStream(st, p)
	lp.note(noteTaken, 0) // before it can be accepted
	e.announce(unannounced{s: s})
}

// released takes an id back, whose stream has ended or never was one.
func (lp *listenerPart) released(st *lane.Stream) {
	e := lp.e
	id := st.ID()
	lp.ids.give(id, 1)
	p := lp.places.At(id)
	if p.IsZero() {
		if s := e.streams.At(id); s != nil {
			s.uncount()
		}
		lp.note(noteReleased, 0)
		return
	}
	lp.places.Set(id, memory.Piece{})
	lp.ports.back(id)
	e.freePiece(p)
	if _, counted := lp.refused[id]; counted {
		delete(lp.refused, id)
		lp.note(noteReleased, 0)
		if e.live == 0 {
			e.owner.emptied(e)
		}
		return
	}
	lp.recalls.went++
	lp.note(noteBack, 0)
}

// freeUntaken gives back what places have that no stream was opened in and none will be, as the dialer has
// said. It may release their ids yet, if it was asked to. mu is held.
func (lp *listenerPart) freeUntaken() {
	e := lp.e
	for i, p := range lp.places {
		if id := lane.ID(i); !p.IsZero() && e.state.Untaken(id) {
			lp.places.Set(id, memory.Piece{})
			lp.ports.back(id)
			e.freePiece(p)
		}
	}
}

// leaveUnanswered goes away from a dialer that does not say how many streams it has opened, or does
// not release those that were refused, and may never.
func (lp *listenerPart) leaveUnanswered() {
	e := lp.e
	e.mu.Lock()
	lp.unheeded = true
	switch {
	case e.err != nil:
	case !lp.final:
		lp.stopped()
	case e.live == 0:
		e.owner.emptied(e)
	}
	if e.err == nil {
		if e.inUse.Load() == 0 { // nor does it answer the ends of its streams, perhaps
			e.ends.awaitAnswers(goAwayTime)
		}
		e.settle()
	}
	e.mu.Unlock()
	e.startWorker()
}

// unheard ends a lane whose dialer has said nothing in time.
func (lp *listenerPart) unheard() {
	e := lp.e
	if lp.silent(fmt.Errorf("%w within %v", errSilent, e.cfg.HandshakeTimeout)) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.heard && e.err == nil {
		lp.timer = runtimer.After(e.cfg.HandshakeTimeout, lp.unheard)
	}
}

// silent ends a lane for err, and reports whether it has ended. It does not if the dialer has
// confirmed or spoken, and that is only not taken in yet: it is no dialer's fault that this
// process was slow.
func (lp *listenerPart) silent(err error) bool {
	e := lp.e
	if !e.begin() {
		return true
	}
	defer e.tasks.Done()
	if e.id.State() != cm.StateConnected && !e.id.Withdraw() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pollOnce()
	if !e.heard {
		e.failLocked(err)
	}
	return e.err != nil
}

// leave has the lane end when its streams have. One that is not up yet ends at once. With
// refuse what is opened from now on is for whoever has the address then; otherwise it is served, until
// the dialer has heard.
func (lp *listenerPart) leave(refuse bool) {
	e := lp.e
	e.mu.Lock()
	lp.refuses = lp.refuses || refuse
	switch {
	case e.err != nil || e.away:
	case !e.heard:
		e.failLocked(net.ErrClosed)
	default:
		e.away = true
		lp.note(noteLeft, 0)
		e.state.GoAway()
		lp.timer = runtimer.After(goAwayTime, lp.leaveUnanswered)
		e.settle()
	}
	e.mu.Unlock()
	e.startWorker()
}

// stopped answers a dialer that has said which streams it has opened, and opens no more. mu is held.
func (lp *listenerPart) stopped() {
	e := lp.e
	e.state.GoAwayFinal()
	lp.final = true
	lp.noteNoMoreStreams()
	if e.live == 0 {
		e.owner.emptied(e)
	}
}

// noteNoMoreStreams says, once, that no stream will come any more, if that is so. mu is held.
func (lp *listenerPart) noteNoMoreStreams() {
	if lp.final && !lp.finalNoted && len(lp.e.unannounced) == 0 {
		lp.finalNoted = true
		lp.note(noteFinal, 0)
	}
}

// bePatient bounds the wait of streams to be accepted, of which there was none. mu is held.
func (lp *listenerPart) bePatient() {
	if lp.patient == nil {
		lp.patient = time.AfterFunc(reachPatience, lp.announceLate)
	} else {
		lp.patient.Reset(reachPatience)
	}
}

// announceLate ends the wait of streams to be accepted.
func (lp *listenerPart) announceLate() {
	e := lp.e
	e.mu.Lock()
	e.announceReady(true)
	if e.err == nil {
		e.settle()
	}
	e.mu.Unlock()
	e.startWorker()
}
