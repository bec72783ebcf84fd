//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// checkDatagram is what is refused at the post of a datagram.
func (q *qp) checkDatagram(wr *verbs.SendWR) error {
	a, ok := wr.AH.(*ah)
	switch {
	case !ok || a == nil || a.pd != q.pd:
		return fmt.Errorf("%w: datagram without an address handle of the QP's PD", verbs.ErrInvalid)
	case a.closed.Load():
		return fmt.Errorf("address handle: %w", verbs.ErrClosed)
	case wr.RemoteQPN >= 1<<24:
		return fmt.Errorf("%w: QPN %#x of more than 24 bits", verbs.ErrInvalid, wr.RemoteQPN)
	}
	return nil
}

// sendDatagram is SEND of a UD QP.
func (q *qp) sendDatagram(wr *verbs.SendWR) outcome {
	if !q.pd.allows(wr.SGList, 0) {
		return failed(verbs.WCLocProtErr)
	}
	a := wr.AH.(*ah)
	size := uint64(len(wr.Inline)) + sgeLength(wr.SGList)
	if size > datagramMTU || !a.local {
		return succeeded // no error either (IBA C10-93.1.1)
	}
	d := datagram{ah: a.attr, sgid: a.sgid, from: q.num, to: wr.RemoteQPN, qkey: wr.RemoteQKey}
	if d.qkey>>31 != 0 {
		d.qkey = q.attr.QKey
	}
	if wr.Opcode == verbs.WRSendWithImm {
		d.flags |= datagramImm
		d.imm = wr.ImmData
	}
	if wr.Flags&verbs.SendSolicited != 0 {
		d.flags |= datagramSolicited
	}
	msg := d.append(q.datagram[:0])[:datagramHeader+size]
	if !q.collect(msg[datagramHeader:], wr, 0) {
		return failed(verbs.WCLocProtErr)
	}
	return q.ctx.out.send(q.ctx.dev, wr.RemoteQPN, msg)
}

// startDatagrams has the QP take datagrams, until reset.
func (q *qp) startDatagrams() {
	// A block that cannot listen is as a port that is down.
	_ = q.ctx.qpns.listen(q.num)
	q.recvCQ.mu.Lock()
	q.stopped, q.failure = false, recvFailure{}
	q.recvCQ.mu.Unlock()
}

// takeDatagram receives a datagram, or drops it: that is what becomes of one with another
// Q_Key, without a receive or with one that is too small (IBA 9.9.3, class D).
func (q *qp) takeDatagram(d *datagram) {
	c := q.recvCQ
	c.mu.Lock()
	if q.typ != verbs.QPTypeUD || q.stopped || q.qkey != d.qkey {
		c.mu.Unlock()
		return
	}
	if wc, ok := q.receiveDatagram(d); ok {
		c.pushTaken(&wc, q)
		c.notify(d.flags&datagramSolicited != 0 || wc.Status != verbs.WCSuccess)
	}
	c.failLocked()
}

// receiveDatagram puts the header and the data where the oldest receive says.
func (q *qp) receiveDatagram(d *datagram) (verbs.WC, bool) {
	if q.srq != nil {
		q.rq.mu.Lock()
		defer q.rq.mu.Unlock()
	}
	size := uint32(verbs.GRHSize + len(d.data))
	r := q.rq.peek()
	if r == nil || size > r.len {
		return verbs.WC{}, false
	}
	wc := verbs.WC{WRID: r.id, Opcode: verbs.WCRecv, Flags: verbs.WCGRH, ByteLen: size, QPN: q.num, SrcQP: d.from, SL: d.ah.SL}
	if d.flags&datagramImm != 0 {
		wc.Flags |= verbs.WCWithImm
		wc.ImmData = d.imm
	}
	var space [verbs.GRHSize]byte
	grh := verbs.AppendGRH(space[:0], &d.ah, d.sgid, len(d.data))
	sges := q.rq.sgesOf(r)
	if r.len == shm.LenRefused || !q.pd.scatter(sges, 0, grh) || !q.pd.scatter(sges, verbs.GRHSize, d.data) {
		q.refuse(&wc, verbs.WCLocProtErr, nakOp)
	}
	if q.srq != nil {
		q.rq.held.Add(1)
		q.srq.taken()
	} else {
		q.rq.next++
	}
	return wc, true
}
