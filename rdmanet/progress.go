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
// caller holds rx.
func (c *Conn) progress() {
	if busy := c.poll(); busy != c.busy.Load() {
		c.busy.Store(busy)
	}
	if c.recv.CreditDue() && c.term.peerListens() {
		c.returnCredit()
	}
	if c.credited {
		// Behind the own credit: the peer's windows count on that.
		c.credited = false
		c.tx.Lock()
		c.flushPending()
		c.tx.Unlock()
	}
}

// poll is progress without the credit; it says whether it was cut short.
//
// It goes on when the connection has failed on the sending side: what had arrived
// by then, the peer's orderly end included, is in the CQ and belongs to the reader.
func (c *Conn) poll() (busy bool) {
	if !c.pollOnce(c.wc[:]) {
		return false
	}
	wcs := takeCompletions()
	defer wcs.giveBack()
	for range maxPolls {
		if !c.pollOnce(wcs[:]) {
			return false
		}
	}
	return true
}

// pollOnce takes as much as wcs hold and says whether there may be more.
func (c *Conn) pollOnce(wcs []verbs.WC) (more bool) {
	if c.deaf {
		return false
	}
	n, err := c.ep.recvCQ.Poll(wcs)
	if err != nil {
		c.deaf = true
		c.fail(syscall.ECONNABORTED, err)
		return false
	}
	for i := range wcs[:n] {
		if !c.completion(&wcs[i]) {
			c.deaf = true
			return false
		}
	}
	if n > 0 && !c.term.failed() {
		if c.term.sendDone() {
			c.reaped += uint32(n) // a peer that failed us gets no more to use
		} else if err := c.repost(wcs[:n]); err != nil {
			c.repostFailed(err)
		}
		if c.reaped == c.depth { // none is left to be flushed
			c.deaf = true
			c.failGone()
			return false
		}
	}
	return n == len(wcs)
}

// completion handles one receive completion; false ends the polling for good.
func (c *Conn) completion(wc *verbs.WC) bool {
	if wc.Status != verbs.WCSuccess {
		c.receiveFailed(wc.Status)
		return false
	}
	imm, sent := wc.ImmData, []byte(nil)
	if wc.Opcode == verbs.WCRecv {
		var err error
		if imm, sent, err = c.ep.sent(wc); err != nil {
			c.violation(err)
			return false
		}
	} else if !c.ep.writeImm {
		c.violation(fmt.Errorf("%w: a WRITE_WITH_IMM where doorbells are SENDs", ErrProtocol))
		return false
	}
	bell, err := c.parseDoorbell(imm)
	if err != nil {
		c.violation(err)
		return false
	}
	c.rxStats.doorbells++
	if !c.term.peerMaySay(bell.Kind) {
		c.violation(fmt.Errorf("%w: %v after the end of the stream", ErrProtocol, bell.Kind))
		return false
	}
	switch bell.Kind {
	case ring.KindData:
		if err := c.recv.Data(bell); err != nil {
			c.violation(err)
			return false
		}
		if n := c.recv.ReceivedBytes(); c.ep.onDemand && n > c.ep.looked {
			if err := c.ep.look(n); err != nil {
				c.fail(syscall.ENOMEM, err)
				return false
			}
		}
		c.rxStats.messages++
		if bell.Grown {
			c.ep.changeOver()
		}
		if inUse := c.recv.ReceivedBytes() - c.reported; inUse >= uint64(c.recv.Size()/8*7) {
			c.wantGrow = true
		}
	case ring.KindCredit:
		c.rxStats.creditsReceived++
		if err := c.takeCredit(c.ep.creditWords(sent)); err != nil {
			c.violation(err)
			return false
		}
	case ring.KindFIN:
		c.term.peerFIN()
	case ring.KindClose:
		c.term.peerClose()
		c.wake(dirWrite)
	case ring.KindReset:
		c.fail(syscall.ECONNRESET, nil)
		return false
	case ring.KindCorrupt:
		c.fail(syscall.ECONNRESET, fmt.Errorf("%w: the peer found it in what this end sent", ErrChecksum))
		return false
	case ring.KindKeepAlive:
	}
	return true
}

// receiveFailed handles a receive that did not complete. A flush says that the
// QP is in ERR: the peer is gone, or this end gave up.
func (c *Conn) receiveFailed(status verbs.WCStatus) {
	c.countStatus(status)
	switch {
	case c.term.peerClosed():
		// It said so before it went.
	case status == verbs.WCWRFlushErr:
		// The request that failed, if one did, says why.
		c.tx.Lock()
		if err := c.sq.reap(); err != nil {
			c.sendFailed(err)
		}
		c.tx.Unlock()
		c.failGone()
	case status == verbs.WCLocLenErr, status == verbs.WCLocQPOpErr, status == verbs.WCRemInvReqErr:
		// The first is what the specification says; the others are soft-RoCE's. A
		// receive has little or no memory, so nothing of ours can be wrong with it.
		c.violation(fmt.Errorf("%w: a SEND that is longer than a doorbell: %w", ErrProtocol, status))
	default:
		c.fail(syscall.ECONNRESET, status)
	}
}

// repostFailed is postFailed for receives. What the peer sent before it left, perhaps that
// it closed, is in the CQ; behind it come the receives that are flushed.
func (c *Conn) repostFailed(err error) {
	if c.ep.up() {
		c.failAfterDrain(syscall.ECONNABORTED, err)
	} else {
		c.endSending(false)
	}
}

// violation cuts off a peer that broke the protocol.
func (c *Conn) violation(err error) {
	c.fail(syscall.ECONNABORTED, err)
}

// owing says that a credit, bytes or the end of the stream are due and have not gone although
// completions of requests are to come, which may make room for it: the peer may be
// asleep waiting for it, so nobody else will wake this end.
func (c *Conn) owing() bool {
	c.rx.Lock()
	credit := c.recv.CreditDue()
	c.rx.Unlock()
	c.tx.Lock()
	defer c.tx.Unlock()
	c.flushPending()
	return (credit || c.pending != 0 || c.gatheredBytes() > 0) && !c.sq.idle()
}
