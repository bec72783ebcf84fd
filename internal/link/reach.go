package link

import (
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// reach has the device learn of the peer's memory before it is written to. The software device
// asks the peer for an MR that it does not know: what a Write has handed over by then would be
// lost with this process, though its peer is there to read it. So the lane touches an MR when it
// first hears of it, with a byte where the first one of a stream is to be, and dials wait until
// that has completed, and streams to be accepted for at most reachPatience: a peer that does not
// answer must not keep a place of the backlog. So do Writes to a ring in an MR that was not
// known then. Other devices need nothing but the key. The lane's lock guards it.
type reach struct {
	rkey uint32
	at   uint64 // sendQueue.posted behind what touches it
}

// reaches reports whether the device knows the memory that the next byte goes to, which this
// stream has not written to if it does not. mu is held.
func (s *stream) reaches() bool {
	return s.st.Sender().Ring().RKey == s.reached || s.reachesNow()
}

// reachesNow is reaches for memory that the stream has not written to last.
func (s *stream) reachesNow() bool {
	if !s.e.p.sameHost {
		return true
	}
	rkey := s.st.Sender().Ring().RKey
	if !s.e.touch(rkey, s.st.Sender().Ring().Addr) {
		return false
	}
	s.reached = rkey
	return true
}

// touch reports whether the device knows of the MR of rkey, and tells it if not.
func (e *laneEnd) touch(rkey uint32, addr uint64) bool {
	for i := len(e.reached) - 1; i >= 0; i-- {
		if e.reached[i].rkey == rkey {
			return e.sq.completed >= e.reached[i].at || e.reap() && e.sq.completed >= e.reached[i].at
		}
	}
	if !e.room(2) || e.err != nil {
		return false
	}
	wr := &e.wrs[0]
	*wr = verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: e.bell[:1], RemoteAddr: addr, RKey: rkey}
	err := e.sq.post(e.wrs[:1], true)
	wr.Inline = nil
	if err != nil {
		e.sendFailed(err)
		return false
	}
	if len(e.reached) == maxReached {
		e.reached = append(e.reached[:0], e.reached[1:]...)
	}
	e.reached = append(e.reached, reach{rkey, e.sq.posted})
	e.reap()
	return e.sq.completed >= e.sq.posted
}

// reachPatience is how long an opened stream waits before Accept has it, though its first Write may
// have to wait then.
const reachPatience = time.Second

// maxReached bounds how many MRs of a peer are remembered. The software device itself maps as many.
const maxReached = 1024

// An unannounced stream is one of which nobody has been told.
type unannounced struct {
	s *stream
	d *dial // nil at a listener
}

// announce tells of a stream as soon as it can be written to. mu is held.
func (e *laneEnd) announce(n unannounced) {
	e.unannounced = append(e.unannounced, n)
	e.announceReady(false)
	if len(e.unannounced) == 0 {
		return
	}
	e.blocks.Store(true)
	e.unseen.Store(true)
	if e.role != lane.RoleListener {
		return
	}
	if e.patient == nil {
		e.patient = time.AfterFunc(reachPatience, e.announceLate)
	} else if len(e.unannounced) == 1 {
		e.patient.Reset(reachPatience)
	}
}

// announceLate ends the wait of streams to be accepted.
func (e *laneEnd) announceLate() {
	e.mu.Lock()
	e.announceReady(true)
	if e.err == nil {
		e.settle()
	}
	e.mu.Unlock()
	e.startWorker()
}

// announceReady tells of the streams that can be written to, in order, or of all when the lane
// has ended: what they have received can be read. mu is held.
func (e *laneEnd) announceReady(all bool) {
	for len(e.unannounced) > 0 {
		n := e.unannounced[0]
		if !all && !n.s.reaches() {
			return
		}
		if len(e.unannounced) == 0 || e.unannounced[0].s != n.s {
			continue // what completed meanwhile has brought us here before
		}
		pop(&e.unannounced)
		if len(e.unannounced) == 0 && e.patient != nil {
			e.patient.Stop()
		}
		if n.d != nil {
			n.d.finish()
		} else {
			e.acceptable(n.s)
		}
	}
	e.noteNoMoreStreams()
}

// acceptable hands a stream to those who accept, and only then answers its OPEN: a dialer waits for
// that with its next one on another lane. mu is held.
func (e *laneEnd) acceptable(s *stream) {
	e.owner.opened(s)
	if s.st.Reset() { // before it came here
		e.owner.reset(s)
	}
	if e.err != nil {
		return
	}
	if err := e.state.Accept(s.st); err != nil {
		e.failLocked(err)
	}
}

// noteNoMoreStreams says, once, that no stream will come any more, if that is so. mu is held.
func (e *laneEnd) noteNoMoreStreams() {
	if e.final && !e.finalNoted && len(e.unannounced) == 0 {
		e.finalNoted = true
		e.note(noteFinal, 0)
	}
}
