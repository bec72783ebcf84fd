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

// postData posts the message that g grants. The caller holds tx and has made sure
// of the room.
func (c *Conn) postData(g ring.Grant, src source, signal bool) bool {
	if g.Grown {
		c.ep.takeUp()
	}
	wrs, r := c.wr[:], (*requests)(nil)
	if g.Spans > 1 || !src.inline || !c.ep.writeImm {
		r = takeRequests()
		defer r.giveBack()
		wrs = r.wrs[:]
	}
	c.writeSpans(wrs, r, g.Span[:g.Spans], &src)
	c.send.Sent(g)
	c.txStats.messages++
	c.txStats.bytes += uint64(g.N)
	return c.ring(wrs[:g.Spans], r, g.Doorbell().Imm(), nil, signal)
}

// writeSpans makes wrs, one for each span, write src to the peer's ring. It needs r unless
// src is inline. The caller holds tx.
func (c *Conn) writeSpans(wrs []verbs.SendWR, r *requests, spans []ring.Span, src *source) {
	at := uint32(0)
	for i, span := range spans {
		wr := &wrs[i]
		wr.Opcode, wr.Flags, wr.ImmData = verbs.WRRDMAWrite, 0, 0
		wr.RemoteAddr = c.ep.peerAddr + ring.DataOffset + uint64(span.Off)
		wr.RKey = c.ep.peerRKey
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

// ring posts wrs, all RDMA WRITEs, with the doorbell on the last or, with a credit if
// there is one, in a SEND after it; then wrs are the first of r.
func (c *Conn) ring(wrs []verbs.SendWR, r *requests, imm uint32, credit []byte, signal bool) bool {
	if c.ep.writeImm {
		last := &wrs[len(wrs)-1]
		last.Opcode, last.ImmData = verbs.WRRDMAWriteWithImm, imm
		last.Flags |= verbs.SendSolicited
	} else {
		wrs = r.wrs[:len(wrs)+1]
		binary.BigEndian.PutUint32(r.bell[:], imm)
		n := doorbellLen + copy(r.bell[doorbellLen:], credit)
		wrs[len(wrs)-1] = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, Inline: r.bell[:n]}
	}
	c.txStats.doorbells++
	err := c.sq.post(wrs, signal)
	for i := range wrs {
		wrs[i].Inline = nil // keep nothing of the application's
	}
	if err != nil {
		c.postFailed(err)
		return false
	}
	return true
}

// postFailed handles requests that the device does not take. In ERR, where the peer's
// leaving takes the QP, some devices refuse them, against the specification.
func (c *Conn) postFailed(err error) {
	if !c.ep.up() {
		err = fmt.Errorf("%w: %w", verbs.ErrState, err)
	}
	c.sendFailed(err)
}

// postControl posts a message without data, with a credit if there is one. False:
// there is no slot or no room now. The caller holds tx.
func (c *Conn) postControl(kind ring.Kind, credit []byte) bool {
	if c.send.ControlSlots() == 0 {
		return false
	}
	if ok, err := c.sq.reserveRoom(maxMessageWRs); !ok {
		if err != nil {
			c.sendFailed(err)
		}
		return false
	}
	c.send.SentControl()
	// The last message is signalled, so that its completion tells that all have gone.
	imm, signal := c.doorbell(kind), kind != ring.KindCredit
	if !c.ep.writeImm {
		r := takeRequests()
		defer r.giveBack()
		return c.ring(r.wrs[:0], r, imm, credit, signal)
	}
	wr := &c.wr[0]
	*wr = verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: credit,
		RemoteAddr: c.ep.peerAddr + ring.CreditOffset, RKey: c.ep.peerRKey,
	}
	if credit == nil {
		// A WRITE of nothing still needs an address that the key covers.
		wr.Flags, wr.Inline = 0, nil
	}
	return c.ring(c.wr[:], nil, imm, nil, signal)
}

// end queues the message that ends the stream and posts it as soon as there is
// room. A later one replaces an earlier one that has not gone. The caller holds tx.
func (c *Conn) end(kind ring.Kind) {
	c.pending = kind
	c.flushPending()
}

// flushPending posts what was gathered, and the end of the stream if it waits. The caller
// holds tx.
func (c *Conn) flushPending() {
	if !c.sendGathered() {
		return
	}
	if c.pending != 0 && !c.term.broken() && c.postControl(c.pending, nil) {
		c.pending = 0
	}
}

// sendFailed handles a request that was not taken or did not complete.
func (c *Conn) sendFailed(err error) {
	c.countStatus(err)
	switch {
	case c.term.peerClosed():
		c.fail(syscall.EPIPE, nil)
	case errors.Is(err, verbs.WCRetryExcErr) && !c.ep.sameHost && !c.term.sendDone():
		c.endSending(true)
	case errors.Is(err, verbs.WCWRFlushErr), errors.Is(err, verbs.WCRetryExcErr),
		errors.Is(err, verbs.ErrState), errors.Is(err, verbs.ErrClosed):
		// The peer is not there any more. What it said before it went, perhaps that
		// it closed, comes by the receive CQ.
		c.endSending(false)
	case errors.Is(err, verbs.WCRemAccessErr):
		// The system takes the MR of a grown ring from a killed process before the QP.
		c.failAfterDrain(syscall.ECONNRESET, fmt.Errorf("%w: it has taken its memory away: %w", ErrPeerGone, err))
	default:
		c.failAfterDrain(syscall.ECONNRESET, err)
	}
}
