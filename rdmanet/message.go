package rdmanet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// source is where the bytes of a data message are: anywhere, for inline requests,
// or in registered memory.
type source struct {
	bytes  []byte
	addr   uint64
	lkey   uint32
	inline bool
}

// postData posts the message that g grants. The caller holds mu and has made sure
// of the room.
func (w *sendHalf) postData(g ring.Grant, src source, signal bool) bool {
	if g.Grown {
		w.ep.takeUp()
	}
	wrs, r := w.wr[:], (*requests)(nil)
	if g.Spans > 1 || !src.inline || !w.ep.writeImm {
		r = takeRequests()
		defer r.giveBack()
		wrs = r.wrs[:]
	}
	w.writeSpans(wrs, r, g.Span[:g.Spans], &src)
	w.ring.Sent(g)
	w.stats.messages++
	w.stats.bytes += uint64(g.N)
	return w.postDoorbell(wrs[:g.Spans], r, g.Doorbell().Imm(), nil, signal)
}

// writeSpans makes wrs, one for each span, write src to the peer's ring. It needs r unless
// src is inline. The caller holds mu.
func (w *sendHalf) writeSpans(wrs []verbs.SendWR, r *requests, spans []ring.Span, src *source) {
	at := uint32(0)
	for i, span := range spans {
		wr := &wrs[i]
		wr.Opcode, wr.Flags, wr.ImmData = verbs.WRRDMAWrite, 0, 0
		wr.RemoteAddr = w.ep.peerAddr + ring.DataOffset + uint64(span.Off)
		wr.RKey = w.ep.peerRKey
		if src.inline {
			wr.Flags = verbs.SendInline
			wr.Inline, wr.SGList = src.bytes[at:at+span.Len], nil
		} else {
			r.sge[i] = verbs.SGE{Addr: src.addr + uint64(at), Length: span.Len, LKey: src.lkey}
			wr.Inline, wr.SGList = nil, r.sge[i:i+1]
		}
		at += span.Len
	}
}

// postDoorbell posts wrs, all RDMA WRITEs, with the doorbell on the last or, with a credit if
// there is one, in a SEND after it; then wrs are the first of r. It reports whether they
// were posted: the peer may have got them also where the connection fails.
func (w *sendHalf) postDoorbell(wrs []verbs.SendWR, r *requests, imm uint32, credit []byte, signal bool) bool {
	if w.ep.writeImm {
		last := &wrs[len(wrs)-1]
		last.Opcode, last.ImmData = verbs.WRRDMAWriteWithImm, imm
		last.Flags |= verbs.SendSolicited
	} else {
		wrs = r.wrs[:len(wrs)+1]
		binary.BigEndian.PutUint32(r.bell[:], imm)
		n := doorbellLen + copy(r.bell[doorbellLen:], credit)
		wrs[len(wrs)-1] = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, Inline: r.bell[:n]}
	}
	w.stats.doorbells++
	err := w.sq.post(wrs, signal)
	for i := range wrs {
		wrs[i].Inline = nil // keep nothing of the application's
	}
	if err != nil {
		w.postFailed(err)
		var unconfirmed *unconfirmedError
		return errors.As(err, &unconfirmed)
	}
	return true
}

// postFailed handles requests that the device does not take. In ERR, where the peer's
// leaving takes the QP, some devices refuse them, against the specification.
func (w *sendHalf) postFailed(err error) {
	if !w.ep.up() {
		err = fmt.Errorf("%w: %w", verbs.ErrState, err)
	}
	w.sendFailed(err)
}

// postControl posts a message without data, with a credit if there is one. False:
// there is no slot or no room now. The caller holds mu.
func (w *sendHalf) postControl(kind ring.Kind, credit []byte) bool {
	if w.ring.ControlSlots() == 0 {
		return false
	}
	if ok, err := w.sq.reserveRoom(maxMessageWRs); !ok {
		if err != nil {
			w.sendFailed(err)
		}
		return false
	}
	w.ring.SentControl()
	// The last message is signalled, so that its completion tells that all have gone.
	imm, signal := w.doorbell(kind), kind != ring.KindCredit
	if !w.ep.writeImm {
		r := takeRequests()
		defer r.giveBack()
		return w.postDoorbell(r.wrs[:0], r, imm, credit, signal)
	}
	wr := &w.wr[0]
	*wr = verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: credit,
		RemoteAddr: w.ep.peerAddr + ring.CreditOffset, RKey: w.ep.peerRKey,
	}
	if credit == nil {
		// A WRITE of nothing still needs an address that the key covers.
		wr.Flags, wr.Inline = 0, nil
	}
	return w.postDoorbell(w.wr[:], nil, imm, nil, signal)
}

// end queues the message that ends the stream and posts it as soon as there is
// room. A later one replaces an earlier one that has not gone. The caller holds mu.
func (w *sendHalf) end(kind ring.Kind) {
	w.pending = kind
	w.flushPending()
}

// flushPending posts what was gathered, and the end of the stream if it waits. The caller
// holds mu.
func (w *sendHalf) flushPending() {
	if !w.sendGathered() {
		return
	}
	if w.pending != 0 && !w.s.term.broken() && w.postControl(w.pending, nil) {
		w.pending = 0
	}
}

// owes reports whether bytes or the end of the stream wait for room. The caller holds mu.
func (w *sendHalf) owes() bool { return w.pending != 0 || w.gatheredBytes() > 0 }

// sendFailed handles a request that was not taken or did not complete.
func (w *sendHalf) sendFailed(err error) {
	w.s.countStatus(err)
	switch {
	case w.s.term.peerClosed():
		w.s.fail(syscall.EPIPE, nil)
	case errors.Is(err, verbs.WCRetryExcErr) && !w.ep.sameHost && !w.s.term.sendDone():
		w.s.endSending(true)
	case errors.Is(err, verbs.WCWRFlushErr), errors.Is(err, verbs.WCRetryExcErr),
		errors.Is(err, verbs.ErrState), errors.Is(err, verbs.ErrClosed):
		// The peer is not there any more. What it said before it went, perhaps that
		// it closed, comes by the receive CQ.
		w.s.endSending(false)
	case errors.Is(err, verbs.WCRemAccessErr):
		// The system takes the MR of a grown ring from a killed process before the QP.
		w.s.failAfterDrain(syscall.ECONNRESET, fmt.Errorf("%w: it has taken its memory away: %w", ErrPeerGone, err))
	default:
		w.s.failAfterDrain(syscall.ECONNRESET, err)
	}
}
