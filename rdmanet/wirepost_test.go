package rdmanet

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// post posts requests as they are.
func (p *wirePeer) post(wrs ...verbs.SendWR) {
	p.t.Helper()
	n, err := p.qp.PostSend(wrs)
	require.NoError(p.t, err)
	require.Len(p.t, wrs, n)
}

// write writes to the other end's memory, off bytes from where its credit block begins.
func (p *wirePeer) write(off uint64, b []byte) {
	p.t.Helper()
	p.post(verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: b,
		RemoteAddr: p.victim.Addr + off, RKey: p.victim.RKey,
	})
}

// place is write that waits until the bytes are there.
func (p *wirePeer) place(off uint64, b []byte) {
	p.t.Helper()
	p.write(off, b)
	p.settle()
}

// bell rings with an immediate that nobody has looked at.
func (p *wirePeer) bell(imm uint32) { p.t.Helper(); p.post(p.bellWR(imm)) }

func (p *wirePeer) bellWR(imm uint32) verbs.SendWR {
	if p.writeImm {
		return verbs.SendWR{
			Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendSolicited, ImmData: imm,
			RemoteAddr: p.victim.Addr, RKey: p.victim.RKey,
		}
	}
	return sendWR(binary.BigEndian.AppendUint32(nil, imm))
}

// send sends b, which belongs on the wire only where there is no WRITE_WITH_IMM.
func (p *wirePeer) send(b []byte) { p.t.Helper(); p.post(sendWR(b)) }

func sendWR(b []byte) verbs.SendWR {
	return verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSolicited, Inline: b}
}

// kind rings for a message without data.
func (p *wirePeer) kind(k ring.Kind) { p.t.Helper(); p.bell(uint32(k) << 28) }

// data announces n bytes without writing them.
func (p *wirePeer) data(n uint32) { p.t.Helper(); p.bell(uint32(ring.KindData)<<28 | n) }

// grown is data with the grown bit.
func (p *wirePeer) grown(n uint32) { p.t.Helper(); p.bell(uint32(ring.KindData)<<28 | 1<<27 | n) }

// text writes s to the start of the ring and announces it.
func (p *wirePeer) text(s string) {
	p.t.Helper()
	p.write(ring.DataOffset, []byte(s))
	p.data(uint32(len(s)))
}

// credit writes the credit block and announces it.
func (p *wirePeer) credit(c ring.Credit) {
	p.t.Helper()
	var b [ring.CreditLen]byte
	c.Put(b[:])
	p.creditBytes(b[:])
}

// creditBytes is credit with bytes that nobody has looked at.
func (p *wirePeer) creditBytes(b []byte) {
	p.t.Helper()
	p.post(p.creditWRs(b)...)
}

func (p *wirePeer) creditWRs(b []byte) []verbs.SendWR {
	imm := ring.Doorbell{Kind: ring.KindCredit}.Imm()
	if !p.writeImm {
		return []verbs.SendWR{sendWR(append(binary.BigEndian.AppendUint32(nil, imm), b...))}
	}
	return []verbs.SendWR{{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: b,
		RemoteAddr: p.victim.Addr + ring.CreditOffset, RKey: p.victim.RKey,
	}, p.bellWR(imm)}
}

// credited is what the other end has told last of the peer's own bytes.
func (p *wirePeer) credited() ring.Credit {
	block := unsafe.Pointer(unsafe.SliceData(p.memory.Bytes()))
	c := ring.CreditFromWords(atomic.LoadUint64((*uint64)(block)), atomic.LoadUint64((*uint64)(unsafe.Add(block, 8))))
	if !p.writeImm {
		c = p.sent
	}
	if c.Size == 0 { // never written
		return ring.Credit{Reposted: p.victim.Depth, Size: p.victim.Size}
	}
	return c
}

// next waits for a completion.
func (p *wirePeer) next(cq verbs.CQ) verbs.WC {
	p.t.Helper()
	var wc [1]verbs.WC
	poll := func() bool {
		n, err := cq.Poll(wc[:])
		return n > 0 || err != nil
	}
	require.NoError(p.t, p.channel.SetReadDeadline(time.Now().Add(patience)))
	require.NoError(p.t, p.channel.WaitRead(func() bool {
		return poll() || cq.ReqNotify(false) != nil || poll()
	}))
	return wc[0]
}

// status posts one signalled request and returns how it ended. On iWARP its success says
// nothing: there it is how a READ behind it ended.
func (p *wirePeer) status(wr verbs.SendWR) verbs.WCStatus {
	p.t.Helper()
	if p.iwarp && wr.Opcode != verbs.WRRDMARead {
		wr.Flags &^= verbs.SendSignaled
		if _, err := p.qp.PostSend([]verbs.SendWR{wr}); err != nil {
			return verbs.WCWRFlushErr
		}
		wr = p.confirmWR()
	}
	wr.Flags |= verbs.SendSignaled
	if !p.iwarp {
		p.post(wr)
		return p.next(p.sendCQ).Status
	}
	if _, err := p.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return verbs.WCWRFlushErr
	}
	// What is posted when the connection ends may never complete (siw).
	status := verbs.WCWRFlushErr
	require.Eventually(p.t, func() bool {
		var wc [1]verbs.WC
		ended := p.qp.State() != verbs.QPRTS
		n, err := p.sendCQ.Poll(wc[:])
		if n > 0 {
			status = wc[0].Status
		}
		return n > 0 || err != nil || ended
	}, patience, time.Millisecond)
	return status
}

// confirmWR is the READ that the other end's device answers on iWARP.
func (p *wirePeer) confirmWR() verbs.SendWR {
	return verbs.SendWR{
		Opcode: verbs.WRRDMARead, SGList: p.scratch(confirmLen),
		RemoteAddr: p.victim.Addr, RKey: p.victim.RKey,
	}
}

// scratch is local memory for what a request brings back.
func (p *wirePeer) scratch(n uint32) []verbs.SGE {
	return []verbs.SGE{{Addr: p.mr.Addr() + wireScratch, Length: n, LKey: p.mr.LKey()}}
}

// mayRead lets the peer's QP send READs and atomics. The connection manager has set
// how many to what the other end grants, and that is none.
func (p *wirePeer) mayRead() {
	p.t.Helper()
	sqd, rts := verbs.QPAttr{State: verbs.QPSQD, MaxRdAtomic: 1}, verbs.QPAttr{State: verbs.QPRTS}
	require.NoError(p.t, p.qp.Modify(&sqd, verbs.QPMaskState))
	drained := func(attr *verbs.QPAttr, mask verbs.QPAttrMask) {
		p.t.Helper()
		require.Eventually(p.t, func() bool { return p.qp.Modify(attr, mask) == nil }, patience, time.Millisecond)
	}
	drained(&sqd, verbs.QPMaskState|verbs.QPMaskMaxQPRdAtomic)
	drained(&rts, verbs.QPMaskState)
}

// heard waits for the other end's next doorbell.
func (p *wirePeer) heard() ring.Doorbell {
	p.t.Helper()
	wc := p.next(p.recvCQ)
	require.Equal(p.t, verbs.WCSuccess, wc.Status)
	bell, err := ring.ParseDoorbell(p.taken(&wc))
	require.NoError(p.t, err)
	return bell
}

// taken is the immediate that a receive brought. It keeps a credit that was sent.
func (p *wirePeer) taken(wc *verbs.WC) (imm uint32) {
	p.t.Helper()
	if p.writeImm {
		return wc.ImmData
	}
	b := p.memory.Bytes()[wireBells+wc.WRID*sentLen:][:wc.ByteLen]
	if len(b) > doorbellLen {
		c, err := ring.ParseCredit(b[doorbellLen:])
		require.NoError(p.t, err)
		p.sent = c
	}
	return binary.BigEndian.Uint32(b)
}

// settle waits until all that the peer has sent has arrived. On iWARP only the answer to a
// READ says so.
func (p *wirePeer) settle() {
	p.t.Helper()
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: p.victim.Addr, RKey: p.victim.RKey}
	if p.iwarp {
		wr = p.confirmWR()
	}
	require.Equal(p.t, verbs.WCSuccess, p.status(wr))
}

// warm waits for what a device does with the first requests only, so that later
// ones have arrived when their post returns.
func (p *wirePeer) warm() {
	p.t.Helper()
	p.place(ring.DataOffset, []byte{0})
	if !p.writeImm {
		p.kind(ring.KindKeepAlive)
		p.settle()
		p.warmed++
	}
}
