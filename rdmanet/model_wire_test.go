package rdmanet

import (
	"encoding/binary"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// The transport of the model: what may happen between two calls of a Conn. Of one QP
// everything is in order. What is not, because no rule of verbs has it so:
//
//   - the memory of the peer is written before the peer is told, at any time, the bytes
//     of the ring in any order, also while the peer reads its credit block
//   - a completion of a send comes any time after the request was executed, before or
//     after whatever the peer answered to it
//   - completions gather in a queue and are taken together; of those that come while
//     a queue is not armed nobody hears
//   - an event comes any time after the completion that caused it, and a sleeper may
//     wake for nothing
//   - the news of a disconnect overtake everything, or come last

// posting keeps the books of what an end posts, and judges it.
func (e *modelEnd) posting(w *simWR) {
	d, peer := &e.dev, e.peer
	if inRing := e.ringOffset(w); inRing >= 0 {
		w.at = e.placing
		e.placing += uint64(len(w.data))
	}
	if !w.rings() {
		return
	}
	imm := w.imm
	if w.op == verbs.WRSend {
		imm = binary.BigEndian.Uint32(w.data)
	}
	parse := ring.ParseDoorbell
	if e.conn.recv.sums != nil {
		parse = ring.ParseFramedDoorbell
	}
	bell, err := parse(imm)
	if err != nil {
		e.m.fail("%v posts the doorbell %#08x: %v", e, imm, err)
	}
	e.m.tell("posts %v %d", bell.Kind, bell.Len)
	e.rung++
	e.said[bell.Kind]++
	if bell.Kind == ring.KindData {
		if e.said[ring.KindFIN]+e.said[ring.KindClose]+e.said[ring.KindReset] > 0 {
			e.m.fail("%v sends data after the end of its stream", e)
		}
		e.sent += uint64(bell.Len)
		if w.at != e.sent-uint64(bell.Len) && w.op == verbs.WRRDMAWriteWithImm {
			e.m.seen.Wraps++
		}
		if padding := e.sent - e.placing; padding > 0 && (e.conn.recv.sums == nil || padding >= ring.FrameAlign) {
			e.m.fail("invariant 1: %v announces %d bytes and writes %d", e, e.sent, e.placing)
		}
		e.placing = e.sent
		if e.conn.send.ring.ControlSlots() < ring.ControlReserve {
			e.m.fail("invariant 2: data of %v takes a receive that is kept for control messages", e)
		}
	}
	if d.failed || peer.dev.failed || peer.conn == nil {
		return
	}
	if n := e.sent - peer.conn.recv.ring.ConsumedBytes(); n > uint64(peer.conn.recv.ring.Size()) {
		e.m.fail("invariant 2: %d bytes of %v are outstanding, the ring has %d", n, e, peer.conn.recv.ring.Size())
	}
	if n := e.rung - e.heard; n > uint64(peer.dev.recvs.len()) {
		e.m.fail("invariant 2: %d messages of %v are outstanding, %d receives are posted", n, e, peer.dev.recvs.len())
	}
}

// ringOffset is where in the peer's ring a request writes, below 0 if it does not.
func (e *modelEnd) ringOffset(w *simWR) int {
	if w.op == verbs.WRSend || len(w.data) == 0 {
		return -1
	}
	return int(w.to-e.conn.ep.peerAddr) - ring.DataOffset
}

// place writes the bytes of request n of e to the memory of the peer.
func (e *modelEnd) place(n uint64) {
	w := e.dev.wr(n)
	if w.placed || w.op == verbs.WRSend {
		return
	}
	w.placed = true
	p := &e.peer.dev
	if w.rkey == 0 || int(w.rkey) > len(p.mrs) {
		e.m.fail("%v uses the key %d, which never was", e, w.rkey)
	}
	mr := p.mrs[w.rkey-1]
	if mr.closed || !mr.remote || w.to < mr.Addr() || w.to+uint64(len(w.data)) > mr.Addr()+uint64(len(mr.buf)) {
		e.m.fail("invariant 2: %v writes where key %d gives no right to (closed: %v)", e, w.rkey, mr.closed)
	}
	if off := e.ringOffset(w); off >= 0 {
		e.peer.overwriting(uint64(off), w.at, uint64(len(w.data)))
	}
	copy(mr.buf[w.to-mr.Addr():], w.data)
}

// A stretch of a ring that is written and not read.
type stretch struct{ off, at, n uint64 }

// overwriting sees that bytes which e has not read are not overwritten.
func (e *modelEnd) overwriting(off, at, n uint64) {
	if off+n > uint64(e.conn.recv.ring.Size()) {
		e.m.fail("invariant 2: bytes %d to %d of the ring of %v, which has %d, are written", off, off+n, e, e.conn.recv.ring.Size())
	}
	consumed := e.conn.recv.ring.ConsumedBytes()
	keep := e.unread[:0]
	for _, s := range e.unread {
		if s.at+s.n <= consumed {
			continue
		}
		if s.at < consumed {
			k := consumed - s.at
			s = stretch{s.off + k, s.at + k, s.n - k}
		}
		if off < s.off+s.n && s.off < off+n {
			e.m.fail("invariant 1: unread bytes from %d on of the ring of %v are overwritten", max(off, s.off), e)
		}
		keep = append(keep, s)
	}
	e.unread = append(keep, stretch{off, at, n})
}

// firstUnplaced is the oldest request of e that is not placed.
func (e *modelEnd) firstUnplaced() (uint64, bool) {
	d := &e.dev
	for n := d.executed; n < d.posted; n++ {
		if w := d.wr(n); !w.placed && w.op != verbs.WRSend {
			return n, true
		}
	}
	return 0, false
}

// mayPlace says that the transport is able to write to the peer's memory.
func (e *modelEnd) mayPlace() bool { return !e.dev.failed && !e.peer.dev.failed }

// placeAhead writes something to the peer's memory before its turn.
func (e *modelEnd) placeAhead() {
	d := &e.dev
	if e.m.c.intn(2) == 0 {
		n := d.executed + uint64(e.m.c.intn(int(d.posted-d.executed)))
		if e.ringOffset(d.wr(n)) >= 0 {
			e.m.seen.Ahead++
			e.m.tell("places request %d, out of turn", n)
			e.place(n)
		}
		return
	}
	if n, ok := e.firstUnplaced(); ok {
		e.m.tell("places request %d", n)
		e.place(n)
	}
}

// creditToCome says that request n writes a credit that is not placed.
func (e *modelEnd) creditToCome(n uint64) bool {
	w := e.dev.wr(n)
	return !w.placed && w.op != verbs.WRSend && len(w.data) >= ring.CreditLen && e.ringOffset(w) < 0
}

// writtenMeanwhile may have the peer's next credit written between two looks at memory,
// or one word of it.
func (d *simDevice) writtenMeanwhile() {
	e, m := d.peer, d.m
	if m.current == nil || e.conn == nil || !e.mayPlace() {
		return
	}
	n := e.dev.executed
	for ; n < e.dev.posted && !e.creditToCome(n); n++ {
	}
	if n == e.dev.posted || m.c.intn(2) > 0 {
		return
	}
	for before := e.dev.executed; before < n; before++ {
		e.place(before)
	}
	w := e.dev.wr(n)
	m.seen.TornCredits++
	word := m.c.intn(len(w.data)/8 + 1)
	m.tell("finds word %d of request %d of the peer being placed", word, n)
	if 8*word == len(w.data) {
		e.place(n)
	} else {
		copy(d.mrs[w.rkey-1].buf[ring.CreditOffset+8*word:], w.data[8*word:8*word+8])
	}
}

// deliver executes the next request of e.
func (e *modelEnd) deliver() {
	d, p := &e.dev, &e.peer.dev
	e.m.fault.swap(e)
	n := d.executed
	w := d.wr(n)
	d.executed++
	switch f := e.m.fault; {
	case w.op == verbs.WRRDMAWriteWithImm && e.ringOffset(w) >= 0 && f == faultEarly && f.now(e.m):
	case w.rings() && f == faultLost && f.now(e.m):
		e.place(n)
		return
	default:
		e.place(n)
	}
	if old, ok := e.m.fault.stale(e); ok {
		d.wr(old).placed = false
		e.place(old)
	}
	if !w.rings() {
		return
	}
	e.heard++
	if p.recvs.len() == 0 {
		e.m.fail("invariant 2: a message finds no receive (RNR) at %v", e.peer)
	}
	r := p.recvs.pop()
	wc := verbs.WC{WRID: r.wrid, Opcode: verbs.WCRecvRDMAWithImm, ImmData: w.imm, ByteLen: uint32(len(w.data)), Flags: verbs.WCWithImm}
	if w.op == verbs.WRSend {
		wc = verbs.WC{WRID: r.wrid, Opcode: verbs.WCRecv, ByteLen: uint32(copy(r.buf, w.data))}
	}
	e.m.tell("message %d arrives", e.heard)
	p.recvCQ.add(wc)
	if f := e.m.fault; f == faultTwice && p.recvs.len() > 0 && f.now(e.m) {
		wc.WRID = p.recvs.pop().wrid
		p.recvCQ.add(wc)
	}
}

// ack completes the requests of e that have been executed, some of them.
func (e *modelEnd) ack(count uint64) {
	d := &e.dev
	done := d.executed
	if f := e.m.fault; f == faultEarlyAck && f.now(e.m) {
		done = d.posted
	}
	for ; count > 0 && d.acked < done; count-- {
		e.complete(verbs.WCSuccess)
	}
}

// signalledBefore says that one of the executed requests will show that it completed.
func (d *simDevice) signalledBefore(end uint64) bool {
	for n := d.acked; n < end; n++ {
		if d.wr(n).signaled {
			return true
		}
	}
	return false
}

// complete completes the oldest request.
func (e *modelEnd) complete(status verbs.WCStatus) {
	d := &e.dev
	w := d.wr(d.acked)
	d.acked++
	if w.signaled || status != verbs.WCSuccess {
		if !w.signaled {
			d.signaled++ // it completes after all
		}
		d.sendCQ.slots.push(d.acked)
		d.sendCQ.add(verbs.WC{WRID: w.wrid, Status: status})
	}
}

// flushSends completes everything that was posted to the send queue of a QP in ERR.
func (d *simDevice) flushSends() {
	for d.acked < d.executed {
		d.end.complete(verbs.WCSuccess)
	}
	for d.acked < d.posted {
		status := verbs.WCWRFlushErr
		if d.status != 0 {
			status, d.status = d.status, 0
		}
		d.executed++
		d.end.complete(status)
	}
}

// flushRecvs does so with the receives, behind all that has arrived.
func (d *simDevice) flushRecvs() {
	for d.recvs.len() > 0 {
		r := d.recvs.pop()
		d.recvCQ.add(verbs.WC{WRID: r.wrid, Status: verbs.WCWRFlushErr})
	}
}

// disconnect ends the connection from the side of e.
func (e *modelEnd) disconnect() {
	if e.dev.disconnected {
		return
	}
	e.dev.disconnected = true
	e.dev.failed = true
	e.dev.news, e.peer.dev.news = true, true
}

// hear has the connection manager tell e of the end.
func (e *modelEnd) hear() {
	e.dev.told = true
	e.conn.event(&cm.Event{Type: cm.Disconnected})
}
