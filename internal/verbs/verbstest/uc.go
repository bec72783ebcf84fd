package verbstest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testUC tests unreliable connections (IBA 9.8.2): what arrives is as on RC, and of what
// does not nobody is told. On a device without CapUC there are none.
func testUC(t *testing.T, s *suite) {
	s.run(t, "NotSupported", func(e *env) {
		if e.can(verbs.CapUC) {
			e.t.Skip("the device has UC")
		}
		cq := e.cq(4, nil)
		_, err := e.pd().CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
		require.ErrorIs(e.t, err, verbs.ErrNotSupported)
	})
	if e := s.open(t); !e.can(verbs.CapUC) {
		return
	}
	testTransitions(t, s, verbs.QPTypeUC)
	for _, c := range []struct {
		name string
		run  func(e *env, p *Pair)
	}{
		{"Opcodes", ucOpcodes},
		{"Sizes", ucSizes},
		{"Order", ucOrder},
		{"NotOfUC", ucNotOfUC},
		{"NoReceive", ucNoReceive},
		{"TooLong", ucTooLong},
		{"RemoteProtection", ucRemoteProtection},
		{"BadReceive", ucBadReceive},
		{"LocalError", ucLocalError},
		{"PeerGone", ucPeerGone},
		{"Flush", ucFlush},
	} {
		s.run(t, c.name, func(e *env) { c.run(e, e.ucPair()) })
	}
	s.run(t, "NobodyThere", func(e *env) {
		// What is sent to a QP that does not answer is sent all the same.
		a, remote := e.unconnected(verbs.QPTypeUC)
		a.Connect(remote)
		for i := range 2 {
			a.Post(sendWR(uint64(i), a.SGL(0, 64)))
			a.SentOK(uint64(i), verbs.WCSend)
		}
		require.Equal(e.t, verbs.QPRTS, a.QP.State())
	})
	s.run(t, "Death", func(e *env) {
		if e.cfg.Peer == nil {
			e.t.Skip("Config.Peer is nil")
		}
		r := e.startPeer(EndConfig{Type: verbs.QPTypeUC})
		r.Recv(1, 0, messageSize)
		r.order("send", 1)
		r.ReceivedOK(1, verbs.WCRecv)
		r.report()
		r.Post(r.write(2, 0, 64))
		r.SentOK(2, verbs.WCRDMAWrite)
		r.kill()
		for i := range 3 {
			r.Post(r.write(uint64(10+i), 0, 64))
			r.SentOK(uint64(10+i), verbs.WCRDMAWrite)
		}
		require.Equal(e.t, verbs.QPRTS, r.QP.State())
	})
}

// ucPair makes two UC QPs that have heard of each other.
func (e *env) ucPair() *Pair {
	e.t.Helper()
	p := e.pair(PairConfig{A: EndConfig{Type: verbs.QPTypeUC}, B: EndConfig{Type: verbs.QPTypeUC}})
	assert.Equal(e.t, verbs.QPTypeUC, p.A.QP.Type())
	p.Settle()
	return p
}

// unharmed requires that both QPs are as they were.
func (e *env) unharmed(p *Pair) {
	e.t.Helper()
	exchange(e.t, p)
	require.Equal(e.t, verbs.QPRTS, p.A.QP.State())
	require.Equal(e.t, verbs.QPRTS, p.B.QP.State())
}

func ucOpcodes(e *env, p *Pair) {
	fill(p.A.Mem[:300], 1)
	send := sendWR(11, p.A.SGL(0, 300))
	sendImm := sendWR(12, p.A.SGL(0, 300))
	sendImm.Opcode, sendImm.ImmData = verbs.WRSendWithImm, 0xdeadbeef
	for i, wr := range []verbs.SendWR{send, sendImm, writeImmWR(13, p.A.SGL(0, 300), p.B, 2000, 0x01020304)} {
		p.B.Recv(uint64(20+i), 500, 400)
		p.A.Post(wr)
		op, done, at := verbs.WCRecv, verbs.WCSend, 500
		if wr.Opcode == verbs.WRRDMAWriteWithImm {
			op, done, at = verbs.WCRecvRDMAWithImm, verbs.WCRDMAWrite, 2000
		}
		wc := p.B.ReceivedOK(uint64(20+i), op)
		assert.EqualValues(e.t, 300, wc.ByteLen)
		assert.Equal(e.t, wr.ImmData, wc.ImmData)
		assert.Equal(e.t, wr.Opcode != verbs.WRSend, wc.Flags == verbs.WCWithImm, "flags %v", wc.Flags)
		sameBytes(e.t, p.A.Mem[:300], p.B.Mem[at:at+300])
		clear(p.B.Mem[at : at+300])
		p.A.SentOK(wr.WRID, done)
	}
	// The completion of a WRITE only says that it was sent; a message behind it comes later.
	p.B.Recv(30, 0, 8)
	p.A.Post(writeWR(14, p.A.SGL(0, 300), p.B, 501), sendWR(15, p.A.SGL(0, 8)))
	p.A.SentOK(14, verbs.WCRDMAWrite)
	p.A.SentOK(15, verbs.WCSend)
	p.B.ReceivedOK(30, verbs.WCRecv)
	sameBytes(e.t, p.A.Mem[:300], p.B.Mem[501:801])
}

func ucSizes(e *env, p *Pair) {
	mtu := p.A.At.ActiveMTU.Bytes()
	for i, n := range []int{0, 1, 4, 5, mtu - 1, mtu, mtu + 1, 3*mtu + 17, 32 << 10} {
		fill(p.A.Mem[:n], i)
		p.B.Recv(1, 0, 32<<10)
		p.A.Post(sendWR(2, p.A.SGL(0, n)))
		wc := p.B.ReceivedOK(1, verbs.WCRecv)
		require.EqualValues(e.t, n, wc.ByteLen)
		sameBytes(e.t, p.A.Mem[:n], p.B.Mem[:n], "SEND of %d bytes", n)
		p.A.SentOK(2, verbs.WCSend)
		clear(p.B.Mem[:n])
		p.B.PostRecv(verbs.RecvWR{WRID: 3})
		p.A.Post(writeImmWR(4, p.A.SGL(0, n), p.B, 0, uint32(n)))
		wc = p.B.ReceivedOK(3, verbs.WCRecvRDMAWithImm)
		require.EqualValues(e.t, n, wc.ImmData)
		sameBytes(e.t, p.A.Mem[:n], p.B.Mem[:n], "WRITE of %d bytes", n)
		p.A.SentOK(4, verbs.WCRDMAWrite)
	}
}

func ucOrder(e *env, p *Pair) {
	const n = 32
	for i := range n {
		p.A.Mem[i] = byte(i)
		p.B.Recv(uint64(i), 100+i, 1)
	}
	for i := range n {
		p.A.Post(sendWR(uint64(i), p.A.SGL(i, 1)))
	}
	for i, wc := range p.B.Received(n) {
		requireOK(e.t, wc, p.B.QP, uint64(i), verbs.WCRecv)
	}
	sameBytes(e.t, p.A.Mem[:n], p.B.Mem[100:100+n])
	for i, wc := range p.A.Sent(n) {
		requireOK(e.t, wc, p.A.QP, uint64(i), verbs.WCSend)
	}
}

// Operations that need an answer are refused at the post.
func ucNotOfUC(e *env, p *Pair) {
	for _, op := range []verbs.WROpcode{
		verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite, verbs.WRSendWithInv,
	} {
		n, err := p.A.QP.PostSend([]verbs.SendWR{oneSided(op, 1, p.A.SGL(0, 8), p.B, 0)})
		require.ErrorIs(e.t, err, verbs.ErrInvalid, "%v", op)
		require.Zero(e.t, n)
	}
	e.unharmed(p)
}

// A message that finds no receive is lost, and the next is not.
func ucNoReceive(e *env, p *Pair) {
	fill(p.A.Mem[:64], 1)
	p.A.Post(sendWR(1, p.A.SGL(0, 64)), writeImmWR(2, p.A.SGL(0, 64), p.B, 1000, 7))
	p.A.SentOK(1, verbs.WCSend)
	p.A.SentOK(2, verbs.WCRDMAWrite)
	e.quiet(p.B.RecvCQ)
	p.B.Recv(3, 0, 64)
	e.quiet(p.B.RecvCQ)
	p.A.Post(sendWR(4, p.A.SGL(0, 60)))
	wc := p.B.ReceivedOK(3, verbs.WCRecv)
	require.EqualValues(e.t, 60, wc.ByteLen)
	p.A.SentOK(4, verbs.WCSend)
	e.unharmed(p)
}

// A message that is too long for the receive is lost too, which leaves the receive for
// the next (IBA 9.9.3, class D).
func ucTooLong(e *env, p *Pair) {
	p.B.Recv(1, 0, 10)
	p.A.Post(sendWR(2, p.A.SGL(0, 11)))
	p.A.SentOK(2, verbs.WCSend)
	if e.cfg.has(DeviatesLocalStatus) {
		require.NotEqual(e.t, verbs.WCSuccess, p.B.Received(1)[0].Status)
		e.inState(p.B.QP, verbs.QPErr)
		require.Equal(e.t, verbs.QPRTS, p.A.QP.State())
		return
	}
	e.quiet(p.B.RecvCQ)
	p.A.Post(sendWR(3, p.A.SGL(0, 10)))
	wc := p.B.ReceivedOK(1, verbs.WCRecv)
	require.EqualValues(e.t, 10, wc.ByteLen)
	p.A.SentOK(3, verbs.WCSend)
	e.unharmed(p)
}

// What the peer does not allow does not happen.
func ucRemoteProtection(e *env, p *Pair) {
	readable := e.mr(p.B.PD, p.B.Mem[8192:], verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	fill(p.A.Mem[:64], 1)
	before := append([]byte(nil), p.B.Mem...)
	for name, wr := range map[string]verbs.SendWR{
		"unknown key":  {RemoteAddr: p.B.MR.Addr(), RKey: p.B.MR.RKey() ^ 0x5a5a5a00},
		"no right":     {RemoteAddr: readable.Addr(), RKey: readable.RKey()},
		"past the end": {RemoteAddr: p.B.MR.Addr() + uint64(len(p.B.Mem)) - 63, RKey: p.B.MR.RKey()},
		"before it":    {RemoteAddr: p.B.MR.Addr() - 1, RKey: p.B.MR.RKey()},
	} {
		wr.WRID, wr.Opcode, wr.Flags, wr.SGList = 1, verbs.WRRDMAWrite, verbs.SendSignaled, p.A.SGL(0, 64)
		p.A.Post(wr)
		p.A.SentOK(1, verbs.WCRDMAWrite)
		e.quiet(p.B.RecvCQ)
		sameBytes(e.t, before, p.B.Mem, name)
	}
	e.unharmed(p)

	take := verbs.QPAttr{State: verbs.QPRTS, AccessFlags: verbs.AccessLocalWrite}
	require.NoError(e.t, p.B.QP.Modify(&take, verbs.QPMaskState|verbs.QPMaskAccessFlags))
	before = append(before[:0], p.B.Mem...)
	p.A.Post(writeWR(2, p.A.SGL(0, 64), p.B, 20000))
	p.A.SentOK(2, verbs.WCRDMAWrite)
	e.quiet(p.B.RecvCQ)
	sameBytes(e.t, before, p.B.Mem, "without the QP's right")
	e.unharmed(p)
}

// A receive that names memory wrongly is its own side's error.
func ucBadReceive(e *env, p *Pair) {
	p.B.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{{Addr: p.B.MR.Addr(), Length: 64, LKey: p.B.MR.LKey() ^ 0x5a5a5a00}}})
	p.B.Recv(2, 0, 64)
	p.A.Post(sendWR(3, p.A.SGL(0, 10)))
	p.A.SentOK(3, verbs.WCSend)
	wcs := p.B.Received(2)
	e.localError(wcs[0], 1)
	requireFlushed(e.t, wcs[1:], 2)
	e.inState(p.B.QP, verbs.QPErr)
	p.A.Post(sendWR(4, p.A.SGL(0, 10)))
	p.A.SentOK(4, verbs.WCSend)
	require.Equal(e.t, verbs.QPRTS, p.A.QP.State())
}

// localError requires that a request failed for memory of its own side.
func (e *env) localError(wc verbs.WC, id uint64) {
	e.t.Helper()
	require.Equal(e.t, id, wc.WRID)
	if e.cfg.has(DeviatesLocalStatus) {
		require.NotEqual(e.t, verbs.WCSuccess, wc.Status)
		return
	}
	require.Equal(e.t, verbs.WCLocProtErr, wc.Status)
}

// A send that fails by its own fault stops the send queue and not the QP.
func ucLocalError(e *env, p *Pair) {
	bad := p.A.SGL(0, 64)
	bad[0].LKey ^= 0x5a5a5a00
	p.A.Recv(9, 0, 64)
	p.A.Post(sendWR(1, bad))
	e.localError(p.A.Sent(1)[0], 1)
	if e.cfg.has(DeviatesSQE) {
		e.inState(p.A.QP, verbs.QPErr)
		return
	}
	e.inState(p.A.QP, verbs.QPSQErr)
	p.A.Post(sendWR(2, p.A.SGL(0, 64)))
	requireFlushed(e.t, p.A.Sent(1), 2)

	p.B.Post(sendWR(3, p.B.SGL(0, 64)))
	p.B.SentOK(3, verbs.WCSend)
	p.A.ReceivedOK(9, verbs.WCRecv) // it still hears
	require.NoError(e.t, p.A.QP.Modify(&verbs.QPAttr{State: verbs.QPRTS}, verbs.QPMaskState))
	e.unharmed(p)
}

func ucPeerGone(e *env, p *Pair) {
	require.NoError(e.t, p.B.QP.Close())
	for i := range 3 {
		p.A.Post(sendWR(uint64(i), p.A.SGL(0, 64)), writeWR(10, p.A.SGL(0, 64), p.B, 0))
		p.A.SentOK(uint64(i), verbs.WCSend)
		p.A.SentOK(10, verbs.WCRDMAWrite)
	}
	require.Equal(e.t, verbs.QPRTS, p.A.QP.State())
}

func ucFlush(e *env, p *Pair) {
	p.A.Recv(1, 0, 64)
	p.A.Recv(2, 0, 64)
	require.NoError(e.t, p.A.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
	requireFlushed(e.t, p.A.Received(2), 1, 2)
	p.A.Post(sendWR(3, p.A.SGL(0, 64)))
	requireFlushed(e.t, p.A.Sent(1), 3)
	// The peer's messages are lost, of which it does not hear.
	p.B.Post(sendWR(4, p.B.SGL(0, 64)))
	p.B.SentOK(4, verbs.WCSend)
	require.Equal(e.t, verbs.QPRTS, p.B.QP.State())
}
