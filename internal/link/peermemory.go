package link

import (
	"math"
	"slices"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// peerMemory has the device learn of the peer's memory before it is written to. The software device
// asks the peer for an MR that it does not know: what a Write has handed over by then would be
// lost with this process, though its peer is there to read it. So the lane has the device ask when
// it first hears of an MR. Where the device cannot ask beside its queue, or has done so in vain, the
// lane touches the MR with a byte where the first one of a stream is to be, for which all that is
// posted behind waits. Dials wait until the memory is known, and streams to be accepted for at most
// reachPatience: a peer that does not answer must not keep a place of the backlog. Writes to
// a ring in an MR that was not known before wait in unreached. Other devices need nothing but the key.
// The lane's lock guards it.
type peerMemory struct {
	e         *laneEnd
	asker     driver.MRAsker // nil if the device cannot be asked
	known     knownMRs       // that the device knows of, or is to
	asking    int            // questions that are under way
	unreached []*stream      // whose Writes wait for an answer
	unasked   []*stream      // and until there may be a question more
}

func newPeerMemory(e *laneEnd) peerMemory {
	pm := peerMemory{e: e}
	pm.asker, _ = e.p.qp.(driver.MRAsker)
	return pm
}

// knownMRs has by the rkey sendQueue.posted behind what touches the MR, 0 if nothing has to, or a constant below.
type knownMRs map[uint32]uint64

const (
	// beingAsked is of memory that the device asks the peer for, and askedInVain of what it was not given
	// so: what touches that waits for it, and fails if it is not there.
	beingAsked  = math.MaxUint64
	askedInVain = math.MaxUint64 - 1
)

// reaches reports whether the device knows the memory that the next byte goes to, which this
// stream has not written to if it does not. mu is held.
func (s *stream) reaches() bool {
	return s.st.Sender().Ring().RKey == s.out.reached && !s.out.unreached || s.reachesNow()
}

// reachesNow is reaches for memory that the stream has not written to last.
func (s *stream) reachesNow() bool {
	if !s.e.p.sameHost {
		return true
	}
	rkey := s.st.Sender().Ring().RKey
	if !s.e.peerMemory.touch(rkey, s.st.Sender().Ring().Addr) {
		return false
	}
	s.e.peerMemory.leave(s)
	s.out.reached = rkey
	return true
}

// touch reports whether the device knows the MR of rkey, and has it learn of it if not.
func (pm *peerMemory) touch(rkey uint32, addr uint64) bool {
	e := pm.e
	at, heard := pm.known[rkey]
	if heard && at != askedInVain {
		return e.sq.completed >= at || e.reap() && e.sq.completed >= at
	}
	if !heard && pm.asker != nil && e.err == nil {
		if pm.asking == maxAsking {
			return false
		}
		if pm.asker.AskMR(rkey, func(known bool) { go pm.learned(rkey, known) }) {
			pm.asking++
			pm.known.set(rkey, beingAsked)
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
	pm.known.set(rkey, at)
	e.reap()
	return e.sq.completed >= at
}

// learned is told that the device knows an MR that it was to ask for, or was not given it. Nothing is
// written here: the ring for which that was may be another stream's by now.
func (pm *peerMemory) learned(rkey uint32, known bool) {
	e := pm.e
	if !e.begin() {
		return
	}
	defer e.tasks.Done()
	e.mu.Lock()
	pm.asking--
	if pm.known[rkey] == beingAsked {
		pm.known[rkey] = askedInVain
		if known {
			pm.known[rkey] = 0
		}
	}
	if e.err == nil {
		pm.answered(rkey)
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

// await notes that a Write found memory that the device does not know, and has it told when it may look
// again. mu is held.
func (pm *peerMemory) await(s *stream) {
	rkey := s.st.Sender().Ring().RKey
	if !s.out.unreached || s.out.reached != rkey { // else it has looked again for another reason
		pm.leave(s)
		switch at, heard := pm.known[rkey]; {
		case !heard && pm.asking == maxAsking:
			pm.unasked = append(pm.unasked, s)
		case at == beingAsked:
			pm.unreached = append(pm.unreached, s)
		default: // it was touched, or is to be
			pm.e.block(s)
			return
		}
	}
	s.out.reached, s.out.unreached, s.out.writable = rkey, true, false
}

// leave has a stream wait for no memory any more: it has another ring, or has ended. A peer that does not
// answer could have any number of them listed. mu is held.
func (pm *peerMemory) leave(s *stream) {
	if !s.out.unreached {
		return
	}
	isThis := func(o *stream) bool { return o == s }
	pm.unreached, pm.unasked = slices.DeleteFunc(pm.unreached, isThis), slices.DeleteFunc(pm.unasked, isThis)
	s.out.reached, s.out.unreached = 0, false
}

// answered has the Writes look again that wait for an MR, and asks for others that there was no question
// left for. mu is held.
func (pm *peerMemory) answered(rkey uint32) {
	e := pm.e
	wait := pm.unreached[:0]
	for _, s := range pm.unreached {
		if s.out.reached == rkey {
			s.looksAgain()
		} else {
			wait = append(wait, s)
		}
	}
	clear(pm.unreached[len(wait):])
	pm.unreached = wait
	for len(pm.unasked) > 0 && pm.asking < maxAsking {
		s := pop(&pm.unasked)
		s.out.reached, s.out.unreached = 0, false
		if s.writeErr() == nil && !s.reaches() { // the ring of one that has ended may be gone
			pm.await(s)
		} else {
			s.looksAgain()
		}
	}
	e.announceReady(false)
}

// looksAgain wakes a Write. mu is held.
func (s *stream) looksAgain() {
	s.out.reached, s.out.unreached, s.out.writable = 0, false, true
	s.out.waiter.found(s.e)
}

// set notes what is known of an MR.
func (r *knownMRs) set(rkey uint32, at uint64) {
	if *r == nil {
		*r = knownMRs{}
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

// maxReached bounds how many MRs of a peer are remembered. The software device itself maps as many.
const maxReached = 4096
