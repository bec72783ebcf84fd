//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// sendQueue counts the requests posted to a QP and holds those that wait. A slot
// is free again when a later signalled completion is polled.
type sendQueue struct {
	max       int
	maxSGE    int
	maxInline int
	posted    uint32 // requests posted in total; requests [done, posted) wait
	done      uint32
	slots     []sendSlot // for those that wait, as many as needed so far
	wait      waitState

	_     [64]byte
	freed atomic.Uint32 // requests whose slots are free; written by Poll
}

// sendSlot is the copy of a request that waits.
type sendSlot struct {
	wr     verbs.SendWR
	sges   []verbs.SGE
	inline []byte
}

// keep takes a request that has to wait, and copies it: the caller's memory is not ours
// after the post.
func (s *sendQueue) keep(wr *verbs.SendWR) {
	if int(s.posted-s.done) == len(s.slots) {
		s.grow()
	}
	k := s.slot(s.posted)
	k.wr = *wr
	k.sges = append(k.sges[:0], wr.SGList...)
	k.inline = append(k.inline[:0], wr.Inline...)
	k.wr.SGList, k.wr.Inline = k.sges, k.inline
	if wr.Bind != nil {
		bind := *wr.Bind
		k.wr.Bind = &bind
	}
	s.posted++
}

// grow doubles the slots: requests of few QPs ever wait, and most of those few at a time.
func (s *sendQueue) grow() {
	former := s.slots
	s.slots = make([]sendSlot, max(4, 2*len(former)))
	for i := s.done; i != s.posted; i++ {
		*s.slot(i) = former[i&uint32(len(former)-1)]
	}
}

func (s *sendQueue) slot(i uint32) *sendSlot { return &s.slots[i&uint32(len(s.slots)-1)] }

// maxKept is the inline buffer that a slot keeps for the next request.
const maxKept = 4096

// forget ends the wait of the oldest request.
func (s *sendQueue) forget() {
	k := s.slot(s.done)
	if cap(k.inline) > maxKept {
		k.inline = nil
	}
	k.wr = verbs.SendWR{}
	s.done++
	s.wait.reset()
}

// outcome is what became of the execution of a request: succeeded, a status with
// which it failed, or what it has to wait for.
type outcome uint32

const (
	succeeded  outcome = 0 // as verbs.WCSuccess
	waitPeer   outcome = 0x100 + iota
	waitRNR            // the peer has no receive posted
	waitMR             // the peer was asked for an MR
	waitBounce         // the bounce area is full, or not there yet
	waitSocket         // the socket for datagrams is full
)

func failed(s verbs.WCStatus) outcome { return outcome(s) }

func (o outcome) waits() bool { return o >= waitPeer }

func (q *qp) PostSend(wrs []verbs.SendWR) (n int, err error) {
	q.mu.Lock()
	for n < len(wrs) {
		if err = q.post(&wrs[n]); err != nil {
			break
		}
		n++
	}
	if q.wake {
		q.unlock()
	} else { // as a rule
		q.mu.Unlock()
	}
	return n, err
}

func (q *qp) post(wr *verbs.SendWR) error {
	s := &q.sq
	if int(s.posted-s.freed.Load()) >= s.max {
		return q.fullError()
	}
	if len(wr.SGList) > s.maxSGE || len(wr.Inline) > s.maxInline || wr.Opcode > verbs.WRBindMW || !q.ops.Has(wr.Opcode) {
		return q.requestError(wr)
	}
	if inline := wr.Flags&verbs.SendInline != 0; inline && len(wr.SGList) > 0 || !inline && len(wr.Inline) > 0 {
		return q.requestError(wr)
	}
	if verbs.QPState(q.state.Load()) != verbs.QPRTS || s.done != s.posted || wr.Opcode > verbs.WRRDMAWriteWithImm || q.typ == verbs.QPTypeUD {
		return q.postSlow(wr)
	}
	if wr.Opcode == verbs.WRRDMAWriteWithImm && !q.ctx.dev.writeImm() {
		return errNoImm
	}
	if len(wr.Inline) > copyUnderLock && wr.Opcode == verbs.WRRDMAWrite && !q.signals(wr) && q.alone == 0 {
		return q.writeApart(wr)
	}
	if o := q.write(wr); o != succeeded {
		return q.postUnfinished(wr, o)
	}
	s.posted++
	s.done++
	if wr.Flags&verbs.SendSignaled != 0 || q.sigAll {
		q.completeSend(wr, verbs.WCSuccess, s.posted)
	}
	return nil
}

// postSlow is post of everything but a WRITE that can be executed at once.
func (q *qp) postSlow(wr *verbs.SendWR) error {
	if err := q.checkSend(wr); err != nil {
		return err
	}
	err := q.take(wr)
	if err == nil && wr.Opcode == verbs.WRBindMW {
		w := wr.Bind.MW.(*window)
		w.key.Store(w.base | uint32(wr.Bind.Key))
	}
	return err
}

// take executes a request, or keeps it for later, as the state of the QP has it.
func (q *qp) take(wr *verbs.SendWR) error {
	s := &q.sq
	switch q.State() {
	case verbs.QPRTS:
		if s.done == s.posted {
			if o := q.execute(wr); o != succeeded {
				return q.postUnfinished(wr, o)
			}
			q.postDone(wr)
			return nil
		}
		s.keep(wr)
	case verbs.QPSQD:
		s.keep(wr)
	case verbs.QPErr, verbs.QPSQErr:
		s.posted++
		s.done++
		q.completeSend(wr, verbs.WCWRFlushErr, s.posted)
	default:
		return q.stateError("send")
	}
	return nil
}

// postDone takes a request that was executed.
func (q *qp) postDone(wr *verbs.SendWR) {
	s := &q.sq
	s.posted++
	s.done++
	if q.signals(wr) {
		q.completeSend(wr, verbs.WCSuccess, s.posted)
	}
}

// postUnfinished takes a request that failed or has to wait.
func (q *qp) postUnfinished(wr *verbs.SendWR, o outcome) error {
	s := &q.sq
	if o = q.settle(wr, o); o == succeeded {
		q.postDone(wr)
		return nil
	}
	if !o.waits() {
		s.posted++
		s.done++
		q.sendFailed(wr, verbs.WCStatus(o), s.posted)
		return nil
	}
	s.keep(wr)
	q.waitFor(o)
	return nil
}

// signals reports whether a success of wr makes a completion.
func (q *qp) signals(wr *verbs.SendWR) bool {
	return wr.Flags&verbs.SendSignaled != 0 || q.sigAll
}

var wcOpcodes = [...]verbs.WCOpcode{
	verbs.WRRDMAWrite:         verbs.WCRDMAWrite,
	verbs.WRRDMAWriteWithImm:  verbs.WCRDMAWrite,
	verbs.WRSend:              verbs.WCSend,
	verbs.WRSendWithImm:       verbs.WCSend,
	verbs.WRRDMARead:          verbs.WCRDMARead,
	verbs.WRAtomicCmpAndSwp:   verbs.WCCompSwap,
	verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd,
	verbs.WRLocalInv:          verbs.WCLocalInv,
	verbs.WRSendWithInv:       verbs.WCSend,
	verbs.WRAtomicWrite:       verbs.WCAtomicWrite,
	verbs.WRBindMW:            verbs.WCBindMW,
}

// completeSend adds the completion of wr, whose polling frees the slots up to upto.
func (q *qp) completeSend(wr *verbs.SendWR, status verbs.WCStatus, upto uint32) {
	wc := verbs.WC{WRID: wr.WRID, Status: status, Opcode: wcOpcodes[wr.Opcode], QPN: q.num}
	if status == verbs.WCSuccess {
		switch wr.Opcode {
		case verbs.WRRDMARead:
			wc.ByteLen = uint32(sgeLength(wr.SGList))
		case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
			wc.ByteLen = 8
		}
	}
	q.sendCQ.push(&wc, &q.sq, upto)
}

func (q *qp) fullError() error {
	if q.closed || q.State() < verbs.QPRTS {
		return q.stateError("send")
	}
	return verbs.ErrQueueFull
}

func (q *qp) requestError(wr *verbs.SendWR) error {
	if wr.Opcode <= verbs.WRBindMW && !q.ops.Has(wr.Opcode) {
		return q.ops.Refuse(wr.Opcode)
	}
	return fmt.Errorf("%w: %v with %d SGEs, %d bytes inline and flags %#x, where a request may have %d SGEs or, with SendInline, %d bytes",
		verbs.ErrInvalid, wr.Opcode, len(wr.SGList), len(wr.Inline), uint8(wr.Flags), q.sq.maxSGE, q.sq.maxInline)
}

var errNoImm = fmt.Errorf("%w: an iWARP device has no immediate data", verbs.ErrNotSupported)

// checkSend is what the device refuses at the post already.
func (q *qp) checkSend(wr *verbs.SendWR) error {
	if q.typ != verbs.QPTypeRC && !q.typ.Has(wr.Opcode) {
		return fmt.Errorf("%w: %v on a %v QP", verbs.ErrInvalid, wr.Opcode, q.typ)
	}
	if q.typ == verbs.QPTypeUD {
		return q.checkDatagram(wr)
	}
	switch wr.Opcode {
	case verbs.WRRDMAWriteWithImm, verbs.WRSendWithImm:
		if !q.ctx.dev.writeImm() {
			return errNoImm
		}
	case verbs.WRBindMW:
		return q.checkBind(wr.Bind)
	case verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		if wr.Flags&verbs.SendInline != 0 {
			return fmt.Errorf("%w: %v brings data back and cannot be inline", verbs.ErrInvalid, wr.Opcode)
		}
	}
	return nil
}

// execute carries a request out as far as it goes.
func (q *qp) execute(wr *verbs.SendWR) outcome {
	if q.typ == verbs.QPTypeUD {
		return q.sendDatagram(wr)
	}
	switch wr.Opcode {
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		return q.write(wr)
	case verbs.WRRDMARead:
		return q.read(wr)
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite:
		return q.atomic(wr)
	case verbs.WRLocalInv:
		return q.localInv(wr)
	case verbs.WRBindMW:
		return q.bind(wr.Bind)
	default:
		return q.sendTwoSided(wr)
	}
}
