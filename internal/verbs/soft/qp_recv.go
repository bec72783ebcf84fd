//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// partial is a message of which only a part has arrived; its receive is taken.
type partial struct {
	on   bool
	id   uint64
	len  uint32 // bytes the receive takes, or LenRefused
	sges []verbs.SGE
	got  uint32
}

// recvFailure is what receive found, for receiveFailed to act on.
type recvFailure struct {
	code nakCode
	err  error // not nil: the peer broke the protocol
}

// receive is takeReceived for who polls. recvCQ.mu is held.
func (q *qp) receive(wc []verbs.WC) int {
	n := q.takeReceived(wc)
	if q.srq != nil && n > 0 {
		q.rq.held.Add(int32(-n))
	}
	return n
}

// takeReceived moves what the peer has published into wc. The receives of an SRQ are held then. recvCQ.mu is held.
func (q *qp) takeReceived(wc []verbs.WC) int {
	if q.stopped {
		if q.flushing {
			return q.flushed(wc)
		}
		return 0
	}
	in, n := q.in, 0
	solicited := uint64(0)
	for n < len(wc) {
		w0, w1, ok := in.Peek()
		if !ok {
			break
		}
		if w0>>32&shm.EntryOpcode == shm.EntryWriteImm && q.srq == nil && !q.cur.on && uint32(w1) <= maxMsg {
			r := q.rq.peek()
			if r == nil {
				q.violation("entry without a receive")
				break
			}
			c := &wc[n]
			c.WRID = r.id
			c.Status = verbs.WCSuccess
			c.Opcode = verbs.WCRecvRDMAWithImm
			c.Flags = verbs.WCWithImm
			c.VendorErr = 0
			c.ByteLen = uint32(w1)
			c.ImmData = uint32(w0)
			c.InvRKey = 0
			c.QPN = q.num
			c.SrcQP = q.src
			c.SLID, c.SL, c.DLIDPathBits = 0, 0, 0
			q.rq.next++
			in.Head++
		} else if !q.receiveAny(w0, w1, &wc[n]) {
			break
		}
		solicited |= w0
		n++
	}
	if n > 0 {
		if !q.talked {
			q.firstMessage()
		}
		q.solicited = solicited>>32&shm.EntrySolicited != 0
		if !in.Unfenced {
			q.recvCQ.countStreak(in, uint32(n))
		}
	}
	return n
}

func (q *qp) firstMessage() {
	q.talked = true
	if q.State() == verbs.QPRTR {
		q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: q})
	}
}

// receiveAny takes any entry but the usual one; false if it has to wait.
func (q *qp) receiveAny(w0, w1 uint64, wc *verbs.WC) bool {
	op := w0 >> 32 & shm.EntryOpcode
	if op < shm.EntryWriteImm || op > shm.EntrySendInv {
		q.violation("unknown entry")
		return false
	}
	if !q.cur.on && !q.takeReceive() {
		return false
	}
	size := uint32(w1)
	if size > maxMsg {
		q.violation("message too long")
		return false
	}
	*wc = verbs.WC{WRID: q.cur.id, Opcode: verbs.WCRecv, ByteLen: size, QPN: q.num, SrcQP: q.src}
	if op == shm.EntryWriteImm {
		wc.Opcode = verbs.WCRecvRDMAWithImm
	} else if !q.receiveData(w0, w1, wc) {
		return false
	}
	switch op {
	case shm.EntryWriteImm, shm.EntrySendImm:
		wc.ImmData, wc.Flags = uint32(w0), verbs.WCWithImm
	case shm.EntrySendInv:
		wc.InvRKey, wc.Flags = uint32(w0), verbs.WCWithInv
		if m := q.ctx.keys.lookup(uint32(w0)); wc.Status == verbs.WCSuccess {
			if m == nil || m.pd != q.pd || !m.usableBy(q) || m.busy() {
				q.refuse(wc, verbs.WCRemInvReqErr, nakInvalid)
			} else if revoking := m.invalidate(); revoking != nil {
				// The sender has let go of its mapping itself.
				go revoking()
			}
		}
	}
	q.cur.on = false
	q.in.Head++
	if q.srq != nil {
		atomic.StoreUint32(q.in.Word(shm.OffConsumed), uint32(q.in.Head))
	}
	return true
}

// takeReceive takes the receive for the entry at the head of the inbox. With an
// SRQ there may be none left: then the entry waits for the next one.
func (q *qp) takeReceive() bool {
	if q.srq != nil {
		q.rq.mu.Lock()
		defer q.rq.mu.Unlock()
	}
	r := q.rq.peek()
	if r == nil {
		if q.srq == nil {
			q.violation("entry without a receive")
		} else {
			q.srq.wait(q)
		}
		return false
	}
	q.cur = partial{on: true, id: r.id, len: r.len, sges: append(q.cur.sges[:0], q.rq.sgesOf(r)...)}
	if q.srq != nil {
		q.rq.held.Add(1)
		q.srq.taken()
	} else {
		q.rq.next++
	}
	return true
}

// dropCur forgets the message that has come in part, if there is one.
func (q *qp) dropCur() {
	if q.cur.on && q.srq != nil {
		q.rq.held.Add(-1)
	}
	q.cur.on = false
}

// receiveData copies the payload of a SEND to the SGEs of its receive; false if
// not all of it is there yet.
func (q *qp) receiveData(w0, w1 uint64, wc *verbs.WC) bool {
	size := uint32(w1)
	if size != 0 && q.cur.len == shm.LenRefused {
		q.refuse(wc, verbs.WCLocProtErr, nakOp)
		return true
	}
	if size > q.cur.len && size != 0 {
		q.refuse(wc, verbs.WCLocLenErr, nakInvalid)
		return true
	}
	if w0>>32&shm.EntryData != 0 {
		if size > 4 {
			q.violation("data that does not fit into its entry")
			return false
		}
		var b [4]byte
		shm.HostOrder.PutUint32(b[:], uint32(w1>>32))
		if !q.pd.scatter(q.cur.sges, 0, b[:size]) {
			q.refuse(wc, verbs.WCLocProtErr, nakOp)
		}
		return true
	}
	for q.cur.got < size {
		b := q.in.Bounced(size - q.cur.got)
		if b == nil {
			return false
		}
		if len(b) == 0 {
			q.violation("more in the bounce area than it holds")
			return false
		}
		if !q.pd.scatter(q.cur.sges, q.cur.got, b) {
			q.refuse(wc, verbs.WCLocProtErr, nakOp)
			return true
		}
		q.cur.got += uint32(len(b))
		q.in.Empty(len(b))
	}
	return true
}

// refuse makes wc the failure of a receive, with which the QP goes to ERR.
func (q *qp) refuse(wc *verbs.WC, status verbs.WCStatus, code nakCode) {
	wc.Status = status
	q.stop(recvFailure{code: code})
}

// violation notes that the peer broke the protocol.
func (q *qp) violation(what string) {
	q.stop(recvFailure{code: nakInvalid, err: fmt.Errorf("%w: %s in the inbox of QP %d", verbs.ErrProtocol, what, q.num)})
}

// stop ends the consumption of the inbox; whoever holds recvCQ.mu sees to the rest.
func (q *qp) stop(f recvFailure) {
	q.stopped, q.failure = true, f
	q.recvCQ.failed = append(q.recvCQ.failed, q)
}
