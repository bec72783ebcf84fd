//go:build linux && (amd64 || arm64)

package soft

import (
	"slices"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// nakCode tells the other end what made a connection fail, after the NAK codes of
// IBA 9.7.5.2.8. The QP that gets one goes to ERR.
type nakCode uint8

const (
	nakNone    nakCode = iota
	nakInvalid         // invalid request
	nakAccess          // remote access error
	nakOp              // remote operational error
	nakLength          // the message is longer than the receive it met
)

// nakFor is what a responder would have answered to a request that failed so.
func nakFor(status verbs.WCStatus) nakCode {
	switch status {
	case verbs.WCRemInvReqErr:
		return nakInvalid
	case verbs.WCRemAccessErr:
		return nakAccess
	case verbs.WCRemOpErr:
		return nakOp
	}
	return nakNone
}

// sendFailed completes a request that failed and moves the QP to ERR, or one that is not RC
// to SQE. Where the responder would have found the error, it is told what it would have
// found. mu is held.
func (q *qp) sendFailed(wr *verbs.SendWR, status verbs.WCStatus, upto uint32) {
	q.completeSend(wr, status, upto)
	if q.typ != verbs.QPTypeRC {
		q.state.Store(uint32(verbs.QPSQErr))
		q.flushSends()
		return
	}
	if code := nakFor(status); code != nakNone && q.link != nil {
		if q.sq.wait.tooLong {
			code = nakLength
		}
		q.link.nak(code)
	}
	q.toError()
}

// toError moves the QP to ERR: requests that wait are flushed, and so are the
// receives, after what the peer had published. mu is held.
func (q *qp) toError() {
	from := q.State()
	if from == verbs.QPErr {
		return
	}
	q.state.Store(uint32(verbs.QPErr))
	q.endDial()
	q.flushSends()
	if from == verbs.QPReset {
		return
	}
	if q.in != nil {
		q.in.Withdraw()
		q.setStatus()
	}
	q.flushReceives()
	if q.srq != nil {
		q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: q})
	}
}

// flushSends flushes the requests that wait. mu is held.
func (q *qp) flushSends() {
	for s := &q.sq; s.done != s.posted; {
		wr := s.slot(s.done).wr
		s.forget()
		q.completeSend(&wr, verbs.WCWRFlushErr, s.done)
	}
}

// flushReceives delivers what has arrived and flushes the receives that are left.
// Their completions are made when they are polled: most QPs end with hundreds of
// receives, whose completions nobody looks at.
func (q *qp) flushReceives() {
	c := q.recvCQ
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.tail
	if !q.stopped && q.in != nil {
		c.takePublished(q, true)
	}
	q.stopped = true
	// The caller acts on what was found, if anything was.
	c.failed = slices.DeleteFunc(c.failed, func(f *qp) bool { return f == q })
	if q.cur.on {
		wc := q.flushedWC(q.cur.id)
		c.pushTaken(&wc, q)
		q.cur.on = false
	}
	if q.srq == nil {
		r := q.rq
		r.mu.Lock()
		r.flush = true
		q.flushing = r.peek() != nil
		r.mu.Unlock()
	}
	if q.flushing && q.in == nil {
		c.takePublished(q, false)
	} else if q.flushing {
		c.consume(q)
		if c.slow {
			c.takePublished(q, false) // where it overruns the CQ that is noticed now
		}
	}
	if q.flushing || c.tail != before {
		c.notify(true)
	}
}

// flushedWC is the completion of a receive that was flushed.
func (q *qp) flushedWC(id uint64) verbs.WC {
	return verbs.WC{WRID: id, Status: verbs.WCWRFlushErr, Opcode: verbs.WCRecv, QPN: q.num}
}

// flushed moves flushed receives into wc. recvCQ.mu is held.
func (q *qp) flushed(wc []verbs.WC) int {
	n := 0
	for n < len(wc) {
		w := q.rq.peek()
		if w == nil {
			q.flushing = false
			break
		}
		wc[n] = q.flushedWC(w.id)
		q.rq.next++
		n++
	}
	return n
}

// receiveFailed acts on what receive found.
func (q *qp) receiveFailed() {
	q.mu.Lock()
	q.receiveFailedLocked()
	q.unlock()
}

func (q *qp) receiveFailedLocked() {
	c := q.recvCQ
	c.mu.Lock()
	f := q.failure
	q.failure = recvFailure{}
	c.mu.Unlock()
	if f.code == nakNone || q.closed {
		return
	}
	if q.link != nil {
		if f.err != nil {
			q.link.close(f.err)
		} else if q.typ == verbs.QPTypeRC {
			q.link.nak(f.code)
		}
	}
	if f.code == nakInvalid {
		q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventQPReqErr, QP: q})
	}
	q.toError()
}

// gotNak is told that the connection failed at the peer. What it had sent before
// is delivered first.
func (q *qp) gotNak(l *link, code nakCode) {
	q.mu.Lock()
	defer q.unlock()
	if st := q.State(); q.link != l || st < verbs.QPRTR || st == verbs.QPErr {
		return
	}
	switch code {
	case nakAccess:
		q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventQPAccessErr, QP: q})
	case nakInvalid:
		q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventQPReqErr, QP: q})
	case nakLength:
		q.failReceive(verbs.WCLocLenErr)
		q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventQPReqErr, QP: q})
	case nakOp:
		q.failReceive(verbs.WCLocProtErr)
	}
	q.toError()
}

// failReceive completes the receive that a message of the peer met but could not use.
func (q *qp) failReceive(status verbs.WCStatus) {
	q.deliver()
	c := q.recvCQ
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.srq != nil || q.stopped {
		return
	}
	id := q.cur.id
	if !q.cur.on {
		w := q.rq.peek()
		if w == nil {
			return
		}
		id = w.id
		q.rq.next++
	}
	c.pushTaken(&verbs.WC{WRID: id, Status: status, Opcode: verbs.WCRecv, QPN: q.num, SrcQP: q.src}, q)
	q.cur.on = false
	c.notify(true)
}

// cqDied moves the QP to ERR after an overrun of one of its CQs.
func (q *qp) cqDied() {
	q.mu.Lock()
	defer q.unlock()
	if q.closed || q.State() == verbs.QPReset || q.State() == verbs.QPErr {
		return
	}
	q.toError()
	q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q})
}

// wakeAll makes whoever sleeps on the QP's completions look at its state.
func (q *qp) wakeAll() {
	receives, sends := q.recvCQ.channel, q.sendCQ.channel
	if receives != nil {
		receives.signal()
	}
	if sends != nil && sends != receives {
		sends.signal()
	}
}
