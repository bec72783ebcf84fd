package verbstest

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testMW tests memory windows of type 2B (IBA 10.6.7.2).
func testMW(t *testing.T, s *suite) {
	s.run(t, "NotSupported", func(e *env) {
		if e.can(verbs.CapMemWindow) {
			e.t.Skip("the device has memory windows")
		}
		_, err := e.pd().AllocMW()
		require.ErrorIs(e.t, err, verbs.ErrNotSupported)
	})
	window := func(name string, f func(e *env, w *windowPair)) {
		s.needs(t, verbs.CapMemWindow, name, func(e *env) { f(e, e.window()) })
	}
	s.needs(t, verbs.CapMemWindow, "Alloc", func(e *env) {
		pd := e.pd()
		mw := e.mw(pd)
		other := e.mw(pd)
		assert.NotEqual(e.t, mw.RKey()&^0xff, other.RKey()&^0xff)
		require.ErrorIs(e.t, pd.Close(), verbs.ErrBusy)
		require.NoError(e.t, mw.Close())
		require.ErrorIs(e.t, mw.Close(), verbs.ErrClosed)
	})
	window("Write", func(e *env, w *windowPair) {
		w.bind(1, verbs.AccessRemoteWrite)
		w.open(1)
		// The MR has no remote right of its own.
		w.shut(verbs.SendWR{RemoteAddr: w.mr.Addr(), RKey: w.mr.RKey()})
	})
	window("Read", func(e *env, w *windowPair) {
		w.bind(1, verbs.AccessRemoteRead)
		fill(w.B.Mem[windowOff:windowOff+64], 3)
		rd := w.wr()
		rd.Opcode = verbs.WRRDMARead
		w.A.Post(rd)
		w.A.SentOK(rd.WRID, verbs.WCRDMARead)
		sameBytes(e.t, w.B.Mem[windowOff:windowOff+64], w.A.Mem[:64])
		w.shut(w.wr()) // no right to write
	})
	window("Atomics", func(e *env, w *windowPair) {
		e.require(verbs.CapAtomics)
		w.bind(1, verbs.AccessRemoteAtomic)
		wr := w.wr()
		wr.Opcode, wr.SGList, wr.CompareAdd = verbs.WRAtomicFetchAndAdd, w.A.SGL(0, 8), 5
		w.A.Post(wr)
		w.A.SentOK(wr.WRID, verbs.WCFetchAdd)
		assert.EqualValues(e.t, 5, binary.NativeEndian.Uint64(w.B.Mem[windowOff:]))
	})
	window("NotBound", func(e *env, w *windowPair) {
		w.shut(verbs.SendWR{RemoteAddr: w.mr.Addr(), RKey: w.mw.RKey()})
	})
	window("PastTheEnd", func(e *env, w *windowPair) {
		w.bind(1, verbs.AccessRemoteWrite)
		wr := w.wr()
		wr.RemoteAddr += windowLen - 63
		if e.cfg.has(DeviatesWindows) {
			w.A.Post(wr)
			w.A.SentOK(wr.WRID, verbs.WCRDMAWrite)
			return
		}
		w.shut(wr)
	})
	window("BeforeIt", func(e *env, w *windowPair) {
		w.bind(1, verbs.AccessRemoteWrite)
		if e.cfg.has(DeviatesWindows) {
			e.t.Skip("a window reaches all of its MR on this device, as PastTheEnd sees")
		}
		wr := w.wr()
		wr.RemoteAddr--
		w.shut(wr)
	})
	window("SEND_WITH_INV", func(e *env, w *windowPair) {
		e.require(verbs.CapSendInv)
		w.bind(1, verbs.AccessRemoteWrite)
		w.open(1)
		send := sendWR(2, w.A.SGL(0, 100))
		send.Opcode, send.ImmData = verbs.WRSendWithInv, w.mw.RKey()
		w.B.Recv(3, 0, 100)
		w.A.Post(send)
		wc := w.B.ReceivedOK(3, verbs.WCRecv)
		assert.EqualValues(e.t, 100, wc.ByteLen)
		assert.Equal(e.t, verbs.WCWithInv, wc.Flags)
		assert.Equal(e.t, w.mw.RKey(), wc.InvRKey)
		w.A.SentOK(2, verbs.WCSend)

		old := w.wr()
		w.bind(2, verbs.AccessRemoteWrite) // it is free again
		w.open(2)
		w.shut(old)
	})
	window("BehindSEND_WITH_INV", func(e *env, w *windowPair) {
		// A request behind the message finds the window shut, polled or not.
		e.require(verbs.CapSendInv)
		w.bind(1, verbs.AccessRemoteWrite)
		w.open(1)
		send := sendWR(2, w.A.SGL(0, 100))
		send.Opcode, send.ImmData = verbs.WRSendWithInv, w.mw.RKey()
		w.B.Recv(3, 0, 100)
		w.A.Post(send, w.wr())
		w.A.SentOK(2, verbs.WCSend)
		require.Equal(e.t, verbs.WCRemAccessErr, w.A.Sent(1)[0].Status)
		w.B.ReceivedOK(3, verbs.WCRecv)
	})
	window("SEND_WITH_INV-again", func(e *env, w *windowPair) {
		e.require(verbs.CapSendInv)
		w.bind(1, verbs.AccessRemoteWrite)
		w.invalidate(w.B, w.mw.RKey())
		w.B.Recv(3, 0, 100)
		send := sendWR(2, w.A.SGL(0, 100))
		send.Opcode, send.ImmData = verbs.WRSendWithInv, w.mw.RKey()^0x80
		w.A.Post(send)
		require.NotEqual(e.t, verbs.WCSuccess, w.B.Received(1)[0].Status)
		e.inState(w.B.QP, verbs.QPErr)
	})
	window("LOCAL_INV", func(e *env, w *windowPair) {
		for key := range uint8(3) {
			w.bind(key, verbs.AccessRemoteWrite)
			w.open(int(key))
			w.invalidate(w.B, w.mw.RKey())
		}
		w.shut(w.wr())
	})
	window("BindAgain", func(e *env, w *windowPair) {
		w.bind(1, verbs.AccessRemoteWrite)
		w.bindFails(2, verbs.AccessRemoteWrite, nil)
	})
	for name, change := range map[string]func(w *windowPair, b *verbs.MWBind){
		"NoLength":     func(w *windowPair, b *verbs.MWBind) { b.Length = 0 },
		"TooLong":      func(w *windowPair, b *verbs.MWBind) { b.Length = uint64(w.mr.Len()) + 1 },
		"Elsewhere":    func(w *windowPair, b *verbs.MWBind) { b.Addr = w.mr.Addr() - 1 },
		"NoBindRight":  func(w *windowPair, b *verbs.MWBind) { b.MR = w.B.MR },
		"NoLocalWrite": func(w *windowPair, b *verbs.MWBind) { b.MR = w.readOnly },
	} {
		window("Bind"+name, func(e *env, w *windowPair) {
			w.bindFails(1, verbs.AccessRemoteWrite, change)
		})
	}
	window("BadBind", func(e *env, w *windowPair) {
		for _, b := range []*verbs.MWBind{nil, {}, {MW: w.mw}, {MR: w.mr}} {
			n, err := w.B.QP.PostSend([]verbs.SendWR{{Opcode: verbs.WRBindMW, Bind: b}})
			require.ErrorIs(e.t, err, verbs.ErrInvalid)
			require.Zero(e.t, n)
		}
		exchange(e.t, w.Pair)
	})
	window("OfItsQP", func(e *env, w *windowPair) {
		// Another QP of the PD is no way in.
		w.bind(1, verbs.AccessRemoteWrite)
		other := e.pair(PairConfig{A: EndConfig{PD: w.A.PD}, B: EndConfig{PD: w.B.PD}})
		wr := w.wr()
		other.A.Post(wr)
		require.Equal(e.t, verbs.WCRemAccessErr, other.A.Sent(1)[0].Status)
		w.open(2)
	})
	window("InvalidatedByStranger", func(e *env, w *windowPair) {
		if e.cfg.has(DeviatesWindows) {
			e.t.Skip("the device lets the peer of another QP invalidate it")
		}
		w.bind(1, verbs.AccessRemoteWrite)
		other := e.pair(PairConfig{A: EndConfig{PD: w.A.PD}, B: EndConfig{PD: w.B.PD}})
		send := sendWR(2, w.A.SGL(0, 10))
		send.Opcode, send.ImmData = verbs.WRSendWithInv, w.mw.RKey()
		other.B.Recv(3, 0, 100)
		other.A.Post(send)
		require.NotEqual(e.t, verbs.WCSuccess, other.B.Received(1)[0].Status)
		e.inState(other.B.QP, verbs.QPErr)
		w.open(2)
	})
	window("NoLKey", func(e *env, w *windowPair) {
		w.bind(1, verbs.AccessRemoteWrite)
		sgl := w.B.SGL(windowOff, 10)
		sgl[0].LKey = w.mw.RKey()
		w.A.Recv(4, 0, 10)
		w.B.Post(sendWR(5, sgl))
		e.localError(w.B.Sent(1)[0], 5)
	})
	window("KeepsItsMR", func(e *env, w *windowPair) {
		w.bind(1, verbs.AccessRemoteWrite)
		require.ErrorIs(e.t, w.mr.Close(), verbs.ErrBusy)
		w.open(1)
		require.NoError(e.t, w.mw.Close())
		require.NoError(e.t, w.mr.Close())
		w.shut(w.wr())
	})
	window("Chain", func(e *env, w *windowPair) {
		// Bound, used up and bound again in one post.
		b := w.bindWR(1, verbs.AccessRemoteWrite)
		inv := verbs.SendWR{WRID: 2, Opcode: verbs.WRLocalInv, ImmData: w.mw.RKey()&^0xff | 1, Flags: verbs.SendSignaled}
		again := w.bindWR(9, verbs.AccessRemoteWrite)
		w.B.Post(b, inv, again)
		w.B.SentOK(b.WRID, verbs.WCBindMW)
		w.B.SentOK(2, verbs.WCLocalInv)
		w.B.SentOK(again.WRID, verbs.WCBindMW)
		require.EqualValues(e.t, 9, w.mw.RKey()&0xff)
		w.open(1)
	})
	s.needs(t, verbs.CapMemWindow|verbs.CapUC, "UC", func(e *env) {
		w := e.windowOf(e.ucPair())
		w.bind(1, verbs.AccessRemoteWrite)
		w.B.Recv(3, 0, 8)
		wr := w.wr()
		w.A.Post(wr, sendWR(4, w.A.SGL(0, 8)))
		w.B.ReceivedOK(3, verbs.WCRecv)
		sameBytes(e.t, w.A.Mem[:64], w.B.Mem[windowOff:windowOff+64])
	})
}

// Where the window is in the memory of its end.
const (
	windowOff = 8192 + 256
	windowLen = 1024
)

// windowPair is a Pair whose B has a window in an MR without remote rights.
type windowPair struct {
	*Pair
	e        *env
	mr       verbs.MR // from 8192 on
	readOnly verbs.MR
	mw       verbs.MW
}

func (e *env) mw(pd verbs.PD) verbs.MW {
	e.t.Helper()
	mw, err := pd.AllocMW()
	require.NoError(e.t, err)
	closeAtEnd(e.t, "MW", mw)
	return mw
}

func (e *env) window() *windowPair {
	e.t.Helper()
	return e.windowOf(e.pair(PairConfig{}))
}

func (e *env) windowOf(p *Pair) *windowPair {
	e.t.Helper()
	w := &windowPair{Pair: p, e: e}
	w.mr = e.mr(p.B.PD, p.B.Mem[8192:16384], verbs.AccessLocalWrite|verbs.AccessMWBind)
	w.readOnly = e.mr(p.B.PD, p.B.Mem[8192:16384], verbs.AccessMWBind)
	w.mw = e.mw(p.B.PD)
	fill(p.A.Mem[:64], 1)
	return w
}

func (w *windowPair) bindWR(key uint8, access verbs.AccessFlags) verbs.SendWR {
	return verbs.SendWR{
		WRID: uint64(key) + 100, Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled,
		Bind: &verbs.MWBind{MW: w.mw, Key: key, MR: w.mr, Addr: w.mr.Addr() + windowOff - 8192, Length: windowLen, Access: access},
	}
}

// bind binds the window, which must be free.
func (w *windowPair) bind(key uint8, access verbs.AccessFlags) {
	w.e.t.Helper()
	wr := w.bindWR(key, access)
	w.B.Post(wr)
	w.B.SentOK(wr.WRID, verbs.WCBindMW)
	require.Equal(w.e.t, key, uint8(w.mw.RKey()))
}

func (w *windowPair) bindFails(key uint8, access verbs.AccessFlags, change func(*windowPair, *verbs.MWBind)) {
	w.e.t.Helper()
	wr := w.bindWR(key, access)
	if change != nil {
		change(w, wr.Bind)
	}
	w.B.Post(wr)
	wc := w.B.Sent(1)[0]
	require.NotEqual(w.e.t, verbs.WCSuccess, wc.Status)
	if !w.e.cfg.has(DeviatesLocalStatus) {
		require.Equal(w.e.t, verbs.WCMWBindErr, wc.Status)
	}
	w.e.inState(w.B.QP, verbs.QPErr)
}

func (w *windowPair) invalidate(x *End, rkey uint32) {
	w.e.t.Helper()
	x.Post(verbs.SendWR{WRID: 50, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, ImmData: rkey})
	x.SentOK(50, verbs.WCLocalInv)
}

// wr is a WRITE of 64 bytes to the beginning of the window.
func (w *windowPair) wr() verbs.SendWR {
	return verbs.SendWR{
		WRID: 60, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: w.A.SGL(0, 64),
		RemoteAddr: w.mr.Addr() + windowOff - 8192, RKey: w.mw.RKey(),
	}
}

// open requires that the peer can write through the window.
func (w *windowPair) open(seed int) {
	w.e.t.Helper()
	fill(w.A.Mem[:64], seed)
	w.A.Post(w.wr())
	w.A.SentOK(60, verbs.WCRDMAWrite)
	sameBytes(w.e.t, w.A.Mem[:64], w.B.Mem[windowOff:windowOff+64])
}

// shut requires that the peer cannot write where wr says, which ends the connection.
func (w *windowPair) shut(wr verbs.SendWR) {
	w.e.t.Helper()
	wr.WRID, wr.Opcode, wr.Flags, wr.SGList = 61, verbs.WRRDMAWrite, verbs.SendSignaled, w.A.SGL(0, 64)
	before := append([]byte(nil), w.B.Mem...)
	fill(w.A.Mem[:64], 99)
	w.A.Post(wr)
	require.Equal(w.e.t, verbs.WCRemAccessErr, w.A.Sent(1)[0].Status)
	sameBytes(w.e.t, before, w.B.Mem)
}
