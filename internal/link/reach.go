package link

import (
	"math"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// reach has the device learn of the peer's memory before it is written to. The software device
// asks the peer for an MR that it does not know: what a Write has handed over by then would be
// lost with this process, though its peer is there to read it. So the lane has the device ask when
// it first hears of an MR. Where the device cannot ask beside its queue, or has done so in vain, the
// lane touches the MR with a byte where the first one of a stream is to be, for which all that is
// posted behind waits. Dials wait until the memory is known, and streams to be accepted for at most
// reachPatience: a peer that does not answer must not keep a place of the backlog. Writes to
// a ring in an MR that was not known before wait in unreached. Other devices need nothing but the key.
// The lane's lock guards it.
//
// By the rkey it has sendQueue.posted behind what touches the MR, 0 if nothing has to, or a constant below.
type reach map[uint32]uint64

const (
	// beingAsked is of memory that the device asks the peer for, and askedInVain of what it was not given
	// so: what touches that waits for it, and fails if it is not there.
	beingAsked  = math.MaxUint64
	askedInVain = math.MaxUint64 - 1
)

// reaches reports whether the device knows the memory that the next byte goes to, which this
// stream has not written to if it does not. mu is held.
func (s *stream) reaches() bool {
	return s.st.Sender().Ring().RKey == s.reached && !s.unreached || s.reachesNow()
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
	s.leaveReach()
	s.reached = rkey
	return true
}

// touch reports whether the device knows the MR of rkey, and has it learn of it if not.
func (e *laneEnd) touch(rkey uint32, addr uint64) bool {
	at, heard := e.reach[rkey]
	if heard && at != askedInVain {
		return e.sq.completed >= at || e.reap() && e.sq.completed >= at
	}
	if !heard && e.asker != nil && e.err == nil {
		if e.asking == maxAsking {
			return false
		}
		if e.asker.AskMR(rkey, func(known bool) { go e.learned(rkey, known) }) {
			e.asking++
			e.reach.set(rkey, beingAsked)
			return false
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
	at = e.sq.posted
	e.reach.set(rkey, at)
	e.reap()
	return e.sq.completed >= at
}

// learned is told that the device knows an MR that it was to ask for, or was not given it. Nothing is
// written here: the ring for which that was may be another stream's by now.
func (e *laneEnd) learned(rkey uint32, known bool) {
	if !e.begin() {
		return
	}
	defer e.tasks.Done()
	e.mu.Lock()
	e.asking--
	if e.reach[rkey] == beingAsked {
		e.reach[rkey] = askedInVain
		if known {
			e.reach[rkey] = 0
		}
	}
	if e.err == nil {
		e.memoryAnswered(rkey)
	}
	if e.err == nil {
		e.settle()
	}
	e.mu.Unlock()
	e.startWorker()
}

// maxAsking bounds the questions of a lane that are under way, and with them the streams that an answer is
// compared with. A device may allow fewer.
const maxAsking = 32

// awaitReach notes that a Write found memory that the device does not know, and has it told when it may
// look again. mu is held.
func (s *stream) awaitReach() {
	e, rkey := s.e, s.st.Sender().Ring().RKey
	if !s.unreached || s.reached != rkey { // else it has looked again for another reason
		s.leaveReach()
		switch at, heard := e.reach[rkey]; {
		case !heard && e.asking == maxAsking:
			e.unasked = append(e.unasked, s)
		case at == beingAsked:
			e.unreached = append(e.unreached, s)
		default: // it was touched, or is to be
			e.block(s)
			return
		}
	}
	s.reached, s.unreached, s.writable = rkey, true, false
}

// leaveReach has a stream wait for no memory any more: it has another ring, or has ended. A peer that does not
// answer could have any number of them listed. mu is held.
func (s *stream) leaveReach() {
	if !s.unreached {
		return
	}
	e, isThis := s.e, func(o *stream) bool { return o == s }
	e.unreached, e.unasked = slices.DeleteFunc(e.unreached, isThis), slices.DeleteFunc(e.unasked, isThis)
	s.reached, s.unreached = 0, false
}

// memoryAnswered has the Writes look again that wait for an MR, and asks for others that there was no question
// left for. mu is held.
func (e *laneEnd) memoryAnswered(rkey uint32) {
	wait := e.unreached[:0]
	for _, s := range e.unreached {
		if s.reached == rkey {
			s.looksAgain()
		} else {
			wait = append(wait, s)
		}
	}
	clear(e.unreached[len(wait):])
	e.unreached = wait
	for len(e.unasked) > 0 && e.asking < maxAsking {
		s := pop(&e.unasked)
		s.reached, s.unreached = 0, false
		if s.writeErr() == nil && !s.reaches() { // the ring of one that has ended may be gone
			s.awaitReach()
		} else {
			s.looksAgain()
		}
	}
	e.announceReady(false)
}

// looksAgain wakes a Write. mu is held.
func (s *stream) looksAgain() {
	s.reached, s.unreached, s.writable = 0, false, true
	s.writer.found(s.e)
}

// set notes what is known of an MR.
func (r *reach) set(rkey uint32, at uint64) {
	if *r == nil {
		*r = reach{}
	}
	for old := range *r { // any that has been asked for: the device knows it, or is asked once more
		if len(*r) < maxReached {
			break
		}
		if (*r)[old] != beingAsked {
			delete(*r, old)
		}
	}
	(*r)[rkey] = at
}

// reachPatience is how long an opened stream waits before Accept has it, though its first Write may
// have to wait then.
const reachPatience = time.Second

// maxReached bounds how many MRs of a peer are remembered. The software device itself maps as many.
const maxReached = 4096

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
// has ended: what they have received can be read. One that has ended meanwhile is not looked at: its ring may
// be gone. mu is held.
func (e *laneEnd) announceReady(all bool) {
	for len(e.unannounced) > 0 {
		n := e.unannounced[0]
		if !all && n.s.writeErr() == nil && !n.s.reaches() {
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
