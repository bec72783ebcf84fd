package rdmanet

import (
	"fmt"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// maxPolls bounds the polls of one progress: a peer that rings faster than we can
// listen must not keep a call for ever.
const maxPolls = 64

// progress takes what has arrived from the receive CQ, posts the receives again,
// and returns credit where it is due. If there may be more it leaves busy set. The
// caller holds mu.
func (r *receiveHalf) progress() {
	if busy := r.poll(); busy != r.busy.Load() {
		r.busy.Store(busy)
	}
	if r.ring.CreditDue() && r.s.term.peerListens() {
		r.returnCredit()
	}
	if r.credited {
		// Behind the own credit: the peer's windows count on that.
		r.credited = false
		r.s.send.mu.Lock()
		r.s.send.flushPending()
		r.s.send.mu.Unlock()
	}
}

// takeIn is progress for who does not hold mu.
func (r *receiveHalf) takeIn() {
	r.mu.Lock()
	r.progress()
	r.mu.Unlock()
}

// poll is progress without the credit; it reports whether it was cut short.
//
// It goes on when the connection has failed on the sending side: what had arrived
// by then, the peer's orderly end included, is in the CQ and belongs to the reader.
func (r *receiveHalf) poll() (busy bool) {
	if !r.pollOnce(r.wc[:]) {
		return false
	}
	wcs := takeCompletions()
	defer wcs.giveBack()
	for range maxPolls {
		if !r.pollOnce(wcs[:]) {
			return false
		}
	}
	return true
}

// pollOnce takes as much as wcs hold and says whether there may be more.
func (r *receiveHalf) pollOnce(wcs []verbs.WC) (more bool) {
	if r.done {
		return false
	}
	n, err := r.ep.recvCQ.Poll(wcs)
	if err != nil {
		r.done = true
		r.s.fail(syscall.ECONNABORTED, err)
		return false
	}
	for i := range wcs[:n] {
		if !r.completion(&wcs[i]) {
			r.done = true
			return false
		}
	}
	if n > 0 && !r.s.term.failed() {
		if r.s.term.sendDone() {
			r.reaped += uint32(n) // a peer that failed us gets no more to use
		} else if err := r.repost(wcs[:n]); err != nil {
			r.repostFailed(err)
		}
		if r.reaped == r.depth { // none is left to be flushed
			r.done = true
			r.s.failGone()
			return false
		}
	}
	return n == len(wcs)
}

// completion handles one receive completion; false ends the polling for good.
func (r *receiveHalf) completion(wc *verbs.WC) bool {
	if wc.Status != verbs.WCSuccess {
		r.receiveFailed(wc.Status)
		return false
	}
	imm, sent := wc.ImmData, []byte(nil)
	if wc.Opcode == verbs.WCRecv {
		var err error
		if imm, sent, err = r.ep.sent(wc); err != nil {
			r.violation(err)
			return false
		}
	} else if !r.ep.writeImm {
		r.violation(fmt.Errorf("%w: a WRITE_WITH_IMM where doorbells are SENDs", ErrProtocol))
		return false
	}
	bell, err := r.parseDoorbell(imm)
	if err != nil {
		r.violation(err)
		return false
	}
	r.stats.doorbells++
	if !r.s.term.peerMaySay(bell.Kind) {
		r.violation(fmt.Errorf("%w: %v after the end of the stream", ErrProtocol, bell.Kind))
		return false
	}
	switch bell.Kind {
	case ring.KindData:
		if err := r.ring.Data(bell); err != nil {
			r.violation(err)
			return false
		}
		if n := r.ring.ReceivedBytes(); r.ep.onDemand && n > r.ep.looked {
			if err := r.ep.look(n); err != nil {
				r.s.fail(syscall.ENOMEM, err)
				return false
			}
		}
		r.stats.messages++
		if bell.Grown {
			r.ep.changeOver()
		}
		if inUse := r.ring.ReceivedBytes() - r.reported; inUse >= uint64(r.ring.Size()/8*7) {
			r.wantGrow = true
		}
	case ring.KindCredit:
		r.stats.creditsReceived++
		if err := r.s.send.takeCredit(r.ep.creditWords(sent)); err != nil {
			r.violation(err)
			return false
		}
		r.credited = true
	case ring.KindFIN:
		r.s.term.peerFIN()
	case ring.KindClose:
		r.s.term.peerClose()
		r.s.endWait(dirWrite)
	case ring.KindReset:
		r.s.fail(syscall.ECONNRESET, nil)
		return false
	case ring.KindCorrupt:
		r.s.fail(syscall.ECONNRESET, fmt.Errorf("%w: the peer found it in what this end sent", ErrChecksum))
		return false
	case ring.KindKeepAlive:
	}
	return true
}

// receiveFailed handles a receive that did not complete. A flush says that the
// QP is in ERR: the peer is gone, or this end gave up.
func (r *receiveHalf) receiveFailed(status verbs.WCStatus) {
	r.s.countStatus(status)
	switch {
	case r.s.term.peerClosed():
		// It said so before it went.
	case status == verbs.WCWRFlushErr:
		// The request that failed, if one did, says why.
		r.s.send.mu.Lock()
		if err := r.s.send.sq.reap(); err != nil {
			r.s.send.sendFailed(err)
		}
		r.s.send.mu.Unlock()
		r.s.failGone()
	case status == verbs.WCLocLenErr, status == verbs.WCLocQPOpErr, status == verbs.WCRemInvReqErr:
		// The first is what the specification says; the others are soft-RoCE's. A
		// receive has little or no memory, so nothing of ours can be wrong with it.
		r.violation(fmt.Errorf("%w: a SEND that is longer than a doorbell: %w", ErrProtocol, status))
	default:
		r.s.fail(syscall.ECONNRESET, status)
	}
}

// repostFailed is postFailed for receives. What the peer sent before it left, perhaps that
// it closed, is in the CQ; behind it come the receives that are flushed.
func (r *receiveHalf) repostFailed(err error) {
	if r.ep.up() {
		r.s.failAfterDrain(syscall.ECONNABORTED, err)
	} else {
		r.s.endSending(false)
	}
}

// violation cuts off a peer that broke the protocol.
func (r *receiveHalf) violation(err error) {
	r.s.fail(syscall.ECONNABORTED, err)
}
