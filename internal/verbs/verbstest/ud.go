package verbstest

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testUD tests datagrams (IBA 9.8.3): whoever has an address handle, the QPN and the Q_Key
// may send, and of what is not received nobody is told. On a device without CapUD there
// are none.
func testUD(t *testing.T, s *suite) {
	s.run(t, "NotSupported", func(e *env) {
		if e.can(verbs.CapUD) {
			e.t.Skip("the device has UD")
		}
		cq := e.cq(4, nil)
		_, err := e.pd().CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
		require.ErrorIs(e.t, err, verbs.ErrNotSupported)
	})
	if e := s.open(t); !e.can(verbs.CapUD) {
		return
	}
	testTransitions(t, s, verbs.QPTypeUD)
	for _, c := range []struct {
		name string
		run  func(e *env, p *udPair)
	}{
		{"Opcodes", udOpcodes},
		{"GRH", udGRH},
		{"Reply", udReply},
		{"Sizes", udSizes},
		{"Order", udOrder},
		{"NotOfUD", udNotOfUD},
		{"Handles", udHandles},
		{"QKey", udQKey},
		{"OwnQKey", udOwnQKey},
		{"NoReceive", udNoReceive},
		{"TooSmall", udTooSmall},
		{"TooLong", udTooLong},
		{"NobodyThere", udNobodyThere},
		{"ManySenders", udManySenders},
		{"BadReceive", udBadReceive},
		{"LocalError", udLocalError},
		{"Flush", udFlush},
		{"Channel", udChannel},
	} {
		s.run(t, c.name, func(e *env) { c.run(e, e.udPair(EndConfig{})) })
	}
	s.run(t, "SRQ", func(e *env) {
		e.require(verbs.CapSRQ)
		pd := e.pd()
		srq := e.srq(pd, verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		p := e.udPair(EndConfig{PD: pd, SRQ: srq})
		for i := range 3 {
			_, err := srq.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGList: p.B.SGL(1000*i, 1000)}})
			require.NoError(e.t, err)
		}
		for i := range 3 {
			p.A.Post(p.send(7, p.A.SGL(0, 100)))
			wc := p.B.ReceivedOK(uint64(i), verbs.WCRecv)
			require.EqualValues(e.t, verbs.GRHSize+100, wc.ByteLen)
		}
		p.A.Sent(3)
		p.A.Post(p.send(8, p.A.SGL(0, 100)))
		p.A.SentOK(8, verbs.WCSend)
		e.quiet(p.B.RecvCQ)
		require.NoError(e.t, p.B.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
		_, err := srq.PostRecv([]verbs.RecvWR{{WRID: 9, SGList: p.B.SGL(0, 1000)}})
		require.NoError(e.t, err)
		p.A.Post(p.send(10, p.A.SGL(0, 100)))
		p.A.SentOK(10, verbs.WCSend)
		e.quiet(p.B.RecvCQ)
	})
	s.run(t, "BackToReset", func(e *env) {
		p := e.udPair(EndConfig{})
		for range 3 {
			p.exchange()
			p.B.Recv(1, 0, 200)
			require.NoError(e.t, p.B.QP.Modify(&verbs.QPAttr{State: verbs.QPReset}, verbs.QPMaskState))
			p.A.Post(p.send(2, p.A.SGL(0, 100)))
			p.A.SentOK(2, verbs.WCSend)
			e.quiet(p.B.RecvCQ)
			p.B.Connect(Address{})
		}
		p.exchange()
	})
	s.run(t, "Process", func(e *env) {
		if e.cfg.Peer == nil {
			e.t.Skip("Config.Peer is nil")
		}
		const n = 20
		r := e.startPeer(EndConfig{Type: verbs.QPTypeUD})
		for i := range n {
			r.Recv(uint64(i), i*200, 200)
		}
		r.order("send", n)
		for i, wc := range r.Received(n) {
			requireOK(e.t, wc, r.QP, uint64(i), verbs.WCRecv)
			require.Equal(e.t, r.hello.Address.QPN, wc.SrcQP)
			require.EqualValues(e.t, i, binary.NativeEndian.Uint64(r.Mem[i*200+verbs.GRHSize:]))
		}
		r.report()
		r.kill()
		wr := e.datagram(r.End, r.hello.Address)
		for i := range 3 {
			wr.WRID = uint64(i)
			r.Post(wr)
			r.SentOK(wr.WRID, verbs.WCSend)
		}
	})
}

// udPair is two UD QPs, of which A knows B's address.
type udPair struct {
	*Pair
	e  *env
	to verbs.SendWR // to B
}

func (e *env) udPair(b EndConfig) *udPair {
	e.t.Helper()
	b.Type = verbs.QPTypeUD
	p := &udPair{Pair: e.pair(PairConfig{A: EndConfig{Type: verbs.QPTypeUD}, B: b}), e: e}
	assert.Equal(e.t, verbs.QPTypeUD, p.A.QP.Type())
	p.to = e.datagram(p.A, p.B.Address())
	return p
}

// ah is an address handle for datagrams from an End.
func (e *env) ah(from *End, to Address) verbs.AH {
	e.t.Helper()
	av := from.At.AH(to.GID, to.LID)
	ah, err := from.PD.CreateAH(&av)
	require.NoError(e.t, err)
	closeAtEnd(e.t, "AH", ah)
	return ah
}

// datagram is a datagram of 64 bytes.
func (e *env) datagram(from *End, to Address) verbs.SendWR {
	e.t.Helper()
	wr := sendWR(1, from.SGL(0, 64))
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah(from, to), to.QPN, testQKey
	return wr
}

func (p *udPair) send(id uint64, sgl []verbs.SGE) verbs.SendWR {
	wr := p.to
	wr.WRID, wr.SGList = id, sgl
	return wr
}

// exchange requires that B hears A.
func (p *udPair) exchange() {
	p.e.t.Helper()
	fill(p.A.Mem[:100], 1)
	p.B.Recv(7, 1000, verbs.GRHSize+100)
	p.A.Post(p.send(8, p.A.SGL(0, 100)))
	wc := p.B.ReceivedOK(7, verbs.WCRecv)
	require.EqualValues(p.e.t, verbs.GRHSize+100, wc.ByteLen)
	sameBytes(p.e.t, p.A.Mem[:100], p.B.Mem[1000+verbs.GRHSize:1100+verbs.GRHSize])
	p.A.SentOK(8, verbs.WCSend)
}

// lost requires that a datagram is sent and not received, and that the next one is.
func (p *udPair) lost(wr verbs.SendWR) {
	p.e.t.Helper()
	p.A.Post(wr)
	p.A.SentOK(wr.WRID, verbs.WCSend)
	p.e.quiet(p.B.RecvCQ)
	require.Equal(p.e.t, verbs.QPRTS, p.A.QP.State())
	require.Equal(p.e.t, verbs.QPRTS, p.B.QP.State())
}

func udOpcodes(e *env, p *udPair) {
	fill(p.A.Mem[:300], 1)
	p.B.Recv(21, 500, 400)
	p.B.Recv(22, 1000, 340)
	imm := p.send(12, p.A.SGL(0, 300))
	imm.Opcode, imm.ImmData = verbs.WRSendWithImm, 0xdeadbeef
	p.A.Post(p.send(11, p.A.SGL(0, 300)), imm)
	wc := p.B.ReceivedOK(21, verbs.WCRecv)
	assert.EqualValues(e.t, verbs.GRHSize+300, wc.ByteLen)
	assert.Equal(e.t, verbs.WCGRH, wc.Flags)
	assert.Equal(e.t, p.A.QP.QPN(), wc.SrcQP)
	sameBytes(e.t, p.A.Mem[:300], p.B.Mem[500+verbs.GRHSize:800+verbs.GRHSize])
	sameBytes(e.t, make([]byte, 60), p.B.Mem[800+verbs.GRHSize:900], "past the message")
	wc = p.B.ReceivedOK(22, verbs.WCRecv)
	assert.Equal(e.t, verbs.WCGRH|verbs.WCWithImm, wc.Flags)
	assert.EqualValues(e.t, 0xdeadbeef, wc.ImmData)
	sameBytes(e.t, p.A.Mem[:300], p.B.Mem[1000+verbs.GRHSize:1300+verbs.GRHSize])
	p.A.SentOK(11, verbs.WCSend)
	p.A.SentOK(12, verbs.WCSend)
	// Inline, and into several pieces, of which one has the end of the header.
	data := []byte("inline data")
	wr := p.send(13, nil)
	wr.Flags |= verbs.SendInline
	wr.Inline = data
	p.B.PostRecv(verbs.RecvWR{WRID: 23, SGList: []verbs.SGE{p.B.SGE(2000, 38), p.B.SGE(3000, 5), p.B.SGE(4000, 100)}})
	p.A.Post(wr)
	p.B.ReceivedOK(23, verbs.WCRecv)
	sameBytes(e.t, data[:3], p.B.Mem[3002:3005])
	sameBytes(e.t, data[3:], p.B.Mem[4000:4000+len(data)-3])
	p.A.SentOK(13, verbs.WCSend)
}

// The header is that of the packet, as IBA 8.3 and annex 17 (RoCE v2) have it.
func udGRH(e *env, p *udPair) {
	for i := range p.B.Mem[:200] {
		p.B.Mem[i] = 0xee
	}
	p.B.Recv(1, 0, 200)
	p.A.Post(p.to)
	p.B.ReceivedOK(1, verbs.WCRecv)
	h := p.B.Mem[:verbs.GRHSize]
	from, to := p.A.At.GID, p.B.At.GID
	if to.Addr().Is4() {
		sameBytes(e.t, make([]byte, 20), h[:20], "before an IPv4 header")
		assert.EqualValues(e.t, 0x45, h[20])
		assert.EqualValues(e.t, 17, h[29], "UDP")
		sameBytes(e.t, from[12:], h[32:36], "source")
		sameBytes(e.t, to[12:], h[36:40], "destination")
		return
	}
	assert.EqualValues(e.t, 6, h[0]>>4)
	sameBytes(e.t, from[:], h[8:24], "source")
	sameBytes(e.t, to[:], h[24:40], "destination")
}

// What came with a datagram is enough to answer it.
func udReply(e *env, p *udPair) {
	p.B.Recv(1, 0, 200)
	p.A.Post(p.to)
	wc := p.B.ReceivedOK(1, verbs.WCRecv)
	av, err := verbs.AHFromWC(e.ctx, p.B.At.Port, &wc, p.B.Mem[:verbs.GRHSize])
	require.NoError(e.t, err)
	assert.Equal(e.t, p.A.At.GID, av.DGID)
	assert.Equal(e.t, p.B.At.Index, av.SGIDIndex)
	ah, err := p.B.PD.CreateAH(&av)
	require.NoError(e.t, err)
	closeAtEnd(e.t, "AH", ah)
	fill(p.B.Mem[1000:1100], 5)
	p.A.Recv(2, 2000, 200)
	answer := sendWR(3, p.B.SGL(1000, 100))
	answer.AH, answer.RemoteQPN, answer.RemoteQKey = ah, wc.SrcQP, testQKey
	p.B.Post(answer)
	wc = p.A.ReceivedOK(2, verbs.WCRecv)
	assert.Equal(e.t, p.B.QP.QPN(), wc.SrcQP)
	sameBytes(e.t, p.B.Mem[1000:1100], p.A.Mem[2000+verbs.GRHSize:2100+verbs.GRHSize])
	for _, bad := range [][]byte{nil, p.B.Mem[:verbs.GRHSize-1], make([]byte, verbs.GRHSize)} {
		_, err = verbs.AHFromWC(e.ctx, p.B.At.Port, &wc, bad)
		require.ErrorIs(e.t, err, verbs.ErrInvalid)
	}
}

func udSizes(e *env, p *udPair) {
	mtu := p.A.At.ActiveMTU.Bytes()
	for i, n := range []int{0, 1, 4, 5, 255, mtu - 1, mtu} {
		fill(p.A.Mem[:n], i)
		p.B.Recv(1, 0, verbs.GRHSize+n)
		p.A.Post(p.send(2, p.A.SGL(0, n)))
		wc := p.B.ReceivedOK(1, verbs.WCRecv)
		require.EqualValues(e.t, verbs.GRHSize+n, wc.ByteLen)
		sameBytes(e.t, p.A.Mem[:n], p.B.Mem[verbs.GRHSize:verbs.GRHSize+n], "%d bytes", n)
		p.A.SentOK(2, verbs.WCSend)
	}
}

func udOrder(e *env, p *udPair) {
	const n = 32
	for i := range n {
		p.A.Mem[i] = byte(i)
		p.B.Recv(uint64(i), 1000+100*i, 100)
	}
	for i := range n {
		p.A.Post(p.send(uint64(i), p.A.SGL(i, 1)))
	}
	for i, wc := range p.B.Received(n) {
		requireOK(e.t, wc, p.B.QP, uint64(i), verbs.WCRecv)
		require.Equal(e.t, byte(i), p.B.Mem[1000+100*i+verbs.GRHSize])
	}
	for i, wc := range p.A.Sent(n) {
		requireOK(e.t, wc, p.A.QP, uint64(i), verbs.WCSend)
	}
}

func udNotOfUD(e *env, p *udPair) {
	for _, op := range []verbs.WROpcode{
		verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd,
		verbs.WRAtomicWrite, verbs.WRSendWithInv, verbs.WRBindMW,
	} {
		wr := p.to
		wr.Opcode, wr.RemoteAddr, wr.RKey = op, p.B.MR.Addr(), p.B.MR.RKey()
		n, err := p.A.QP.PostSend([]verbs.SendWR{wr})
		require.ErrorIs(e.t, err, verbs.ErrInvalid, "%v", op)
		require.Zero(e.t, n)
	}
	p.exchange()
}

func udHandles(e *env, p *udPair) {
	good := p.A.At.AH(p.B.At.GID, p.B.At.LID)
	for name, change := range map[string]func(*verbs.AHAttr){
		"port 0":    func(a *verbs.AHAttr) { a.PortNum = 0 },
		"port":      func(a *verbs.AHAttr) { a.PortNum = uint8(e.attr.PhysPortCnt) + 1 },
		"GID index": func(a *verbs.AHAttr) { a.SGIDIndex = p.A.At.GIDTblLen },
	} {
		bad := good
		change(&bad)
		_, err := p.A.PD.CreateAH(&bad)
		require.ErrorIs(e.t, err, verbs.ErrInvalid, name)
	}
	_, err := p.A.PD.CreateAH(nil)
	require.ErrorIs(e.t, err, verbs.ErrInvalid)

	pd := e.pd()
	other, err := pd.CreateAH(&good)
	require.NoError(e.t, err)
	require.ErrorIs(e.t, pd.Close(), verbs.ErrBusy)
	refused := func(ah verbs.AH, want error) {
		wr := p.to
		wr.AH = ah
		n, err := p.A.QP.PostSend([]verbs.SendWR{wr})
		require.ErrorIs(e.t, err, want)
		require.Zero(e.t, n)
	}
	refused(nil, verbs.ErrInvalid)
	refused(other, verbs.ErrInvalid) // of another PD
	require.NoError(e.t, other.Close())
	require.ErrorIs(e.t, other.Close(), verbs.ErrClosed)
	require.NoError(e.t, pd.Close())
	mine, err := p.A.PD.CreateAH(&good)
	require.NoError(e.t, err)
	require.NoError(e.t, mine.Close())
	refused(mine, verbs.ErrClosed)
	p.exchange()
}

func udQKey(e *env, p *udPair) {
	p.B.Recv(9, 0, 200)
	wr := p.send(1, p.A.SGL(0, 64))
	for _, key := range []uint32{0, testQKey ^ 1, testQKey ^ 1<<30} {
		wr.RemoteQKey = key
		p.lost(wr)
	}
	// It may be changed at any time.
	require.NoError(e.t, p.B.QP.Modify(&verbs.QPAttr{State: verbs.QPRTS, QKey: 77}, verbs.QPMaskState|verbs.QPMaskQKey))
	attr, _, err := p.B.QP.Query()
	require.NoError(e.t, err)
	require.EqualValues(e.t, 77, attr.QKey)
	wr.RemoteQKey = testQKey
	p.lost(wr)
	wr.RemoteQKey = 77
	p.A.Post(wr)
	p.B.ReceivedOK(9, verbs.WCRecv)
	p.A.SentOK(1, verbs.WCSend)
}

// With the highest bit set the sender's own Q_Key goes out (IBA 10.2.5).
func udOwnQKey(e *env, p *udPair) {
	p.B.Recv(9, 0, 200)
	wr := p.send(1, p.A.SGL(0, 64))
	wr.RemoteQKey = 1 << 31
	if e.cfg.has(DeviatesOwnQKey) {
		p.lost(wr)
		return
	}
	p.A.Post(wr)
	p.B.ReceivedOK(9, verbs.WCRecv)
	p.A.SentOK(1, verbs.WCSend)
}

func udNoReceive(e *env, p *udPair) {
	p.lost(p.to)
	p.B.Recv(9, 0, 200)
	e.quiet(p.B.RecvCQ)
	p.A.Post(p.send(3, p.A.SGL(0, 60)))
	wc := p.B.ReceivedOK(9, verbs.WCRecv)
	require.EqualValues(e.t, verbs.GRHSize+60, wc.ByteLen)
	p.A.SentOK(3, verbs.WCSend)
}

// The receive is for the header, too, and stays for a datagram that fits (IBA 9.9.3, class D).
func udTooSmall(e *env, p *udPair) {
	p.B.Recv(9, 0, verbs.GRHSize+10)
	if e.cfg.has(DeviatesLocalStatus) {
		p.A.Post(p.send(1, p.A.SGL(0, 11)))
		p.A.SentOK(1, verbs.WCSend)
		e.quiet(p.A.SendCQ)
		require.Equal(e.t, verbs.QPRTS, p.A.QP.State()) // the receive is not of use any more
		return
	}
	p.lost(p.send(1, p.A.SGL(0, 11)))
	p.A.Post(p.send(2, p.A.SGL(0, 10)))
	wc := p.B.ReceivedOK(9, verbs.WCRecv)
	require.EqualValues(e.t, verbs.GRHSize+10, wc.ByteLen)
	p.A.SentOK(2, verbs.WCSend)
}

// More than the MTU is not sent, without an error (IBA C10-93.1.1).
func udTooLong(e *env, p *udPair) {
	p.B.Recv(9, 0, 20000)
	p.lost(p.send(1, p.A.SGL(0, p.A.At.MaxMTU.Bytes()+1)))
	p.A.Post(p.to)
	p.B.ReceivedOK(9, verbs.WCRecv)
}

func udNobodyThere(e *env, p *udPair) {
	wr := p.to
	require.NoError(e.t, p.B.QP.Close())
	for i := range 3 {
		wr.WRID = uint64(i)
		p.A.Post(wr)
		p.A.SentOK(uint64(i), verbs.WCSend)
	}
	wr.RemoteQPN = p.B.QP.QPN() ^ 0x800000 // of nobody's block
	p.A.Post(wr)
	p.A.SentOK(wr.WRID, verbs.WCSend)
	require.Equal(e.t, verbs.QPRTS, p.A.QP.State())
}

// A QP hears everybody, also those of another context.
func udManySenders(e *env, p *udPair) {
	const n = 4
	ctx := e.cfg.Open(e.t)
	closeAtEnd(e.t, "Context", ctx)
	for i := range n {
		cfg := EndConfig{Type: verbs.QPTypeUD}
		if i%2 == 1 {
			cfg.Context = ctx
		}
		x := e.end(cfg)
		x.Connect(Address{})
		wr := e.datagram(x, p.B.Address())
		p.B.Recv(uint64(i), 0, 200)
		fill(x.Mem[:64], i)
		x.Post(wr)
		wc := p.B.ReceivedOK(uint64(i), verbs.WCRecv)
		require.Equal(e.t, x.QP.QPN(), wc.SrcQP)
		sameBytes(e.t, x.Mem[:64], p.B.Mem[verbs.GRHSize:verbs.GRHSize+64])
		x.SentOK(1, verbs.WCSend)
	}
}

func udBadReceive(e *env, p *udPair) {
	p.B.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{{Addr: p.B.MR.Addr(), Length: 200, LKey: p.B.MR.LKey() ^ 0x5a5a5a00}}})
	p.B.Recv(2, 0, 200)
	p.A.Post(p.to)
	p.A.SentOK(1, verbs.WCSend)
	wcs := p.B.Received(2)
	e.localError(wcs[0], 1)
	requireFlushed(e.t, wcs[1:], 2)
	e.inState(p.B.QP, verbs.QPErr)
	require.Equal(e.t, verbs.QPRTS, p.A.QP.State())
}

func udLocalError(e *env, p *udPair) {
	bad := p.A.SGL(0, 64)
	bad[0].LKey ^= 0x5a5a5a00
	p.B.Recv(1, 0, 200)
	p.A.Post(p.send(2, bad))
	e.localError(p.A.Sent(1)[0], 2)
	if e.cfg.has(DeviatesSQE) {
		e.inState(p.A.QP, verbs.QPErr)
		return
	}
	e.inState(p.A.QP, verbs.QPSQErr)
	p.A.Post(p.to)
	requireFlushed(e.t, p.A.Sent(1), 1)
	e.quiet(p.B.RecvCQ)
	require.NoError(e.t, p.A.QP.Modify(&verbs.QPAttr{State: verbs.QPRTS}, verbs.QPMaskState))
	p.A.Post(p.to)
	p.B.ReceivedOK(1, verbs.WCRecv)
}

func udFlush(e *env, p *udPair) {
	p.B.Recv(1, 0, 200)
	p.B.Recv(2, 0, 200)
	require.NoError(e.t, p.B.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
	requireFlushed(e.t, p.B.Received(2), 1, 2)
	p.B.Recv(3, 0, 200)
	requireFlushed(e.t, p.B.Received(1), 3)
	p.A.Post(p.to)
	p.A.SentOK(1, verbs.WCSend)
	e.quiet(p.B.RecvCQ)
}

// A sleeper is woken.
func udChannel(e *env, p *udPair) {
	x := e.end(EndConfig{Type: verbs.QPTypeUD, withChannel: true})
	x.Connect(Address{})
	wr := e.datagram(p.A, x.Address())
	for i := range 20 {
		x.Recv(uint64(i), 0, 200)
		got := make(chan error, 1)
		go func() {
			var wc [1]verbs.WC
			got <- x.channel.WaitRead(func() bool {
				if err := x.RecvCQ.ReqNotify(false); err != nil {
					return true
				}
				n, err := x.RecvCQ.Poll(wc[:])
				return n == 1 || err != nil
			})
		}()
		p.A.Post(wr)
		finish(e.t, got, 1, e.cfg.Timeout)
		p.A.SentOK(1, verbs.WCSend)
	}
}
