package verbstest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testInvalidate tests the requests that make a key worthless (IBA 10.6.5). LOCAL_INV comes
// with SEND_WITH_INV, so both depend on CapSendInv.
func testInvalidate(t *testing.T, s *suite) {
	s.run(t, "SEND_WITH_INV", func(e *env) {
		p := e.pair(PairConfig{})
		fill(p.A.Mem[:100], 1)
		mr := e.mr(p.B.PD, p.B.Mem[4096:8192], everything)
		wr := sendWR(1, p.A.SGL(0, 100))
		wr.Opcode, wr.ImmData = verbs.WRSendWithInv, mr.RKey()
		if !e.can(verbs.CapSendInv) {
			e.refused(p, wr)
			return
		}
		into := writeWR(9, p.A.SGL(0, 100), p.B, 0)
		into.RemoteAddr, into.RKey = mr.Addr(), mr.RKey()
		p.A.Post(into)
		p.A.SentOK(9, verbs.WCRDMAWrite)

		p.B.Recv(2, 0, 100)
		p.A.Post(wr)
		if e.cfg.has(DeviatesInvalidate) {
			require.NotEqual(e.t, verbs.WCSuccess, p.B.Received(1)[0].Status)
			e.inState(p.B.QP, verbs.QPErr)
			return
		}
		wc := p.B.ReceivedOK(2, verbs.WCRecv)
		assert.EqualValues(e.t, 100, wc.ByteLen)
		assert.Equal(e.t, verbs.WCWithInv, wc.Flags)
		assert.Equal(e.t, mr.RKey(), wc.InvRKey)
		sameBytes(e.t, p.A.Mem[:100], p.B.Mem[:100])
		p.A.SentOK(1, verbs.WCSend)

		before := append([]byte(nil), p.B.Mem[4096:8192]...)
		fill(p.A.Mem[:100], 2)
		p.A.Post(into)
		require.Equal(e.t, verbs.WCRemAccessErr, p.A.Sent(1)[0].Status)
		sameBytes(e.t, before, p.B.Mem[4096:8192])
		require.NoError(e.t, mr.Close())
	})

	s.needs(t, verbs.CapSendInv, "SEND_WITH_INV-unknown", func(e *env) {
		// A key that is not there fails the receive. Whether the sender hears of it
		// with this request or a later one is the device's choice (IBA 9.9.3, class J).
		p := e.pair(PairConfig{})
		p.B.Recv(2, 0, 100)
		p.B.Recv(3, 0, 100)
		wr := sendWR(1, p.A.SGL(0, 10))
		wr.Opcode, wr.ImmData = verbs.WRSendWithInv, p.B.MR.RKey()^0x5a5a5a00
		p.A.Post(wr)
		wcs := p.B.Received(2)
		require.NotEqual(e.t, verbs.WCSuccess, wcs[0].Status)
		require.EqualValues(e.t, 2, wcs[0].WRID)
		requireFlushed(e.t, wcs[1:], 3)
		e.inState(p.B.QP, verbs.QPErr)
		p.A.Sent(1)
	})

	s.run(t, "LOCAL_INV", func(e *env) {
		p := e.pair(PairConfig{})
		mr := e.mr(p.A.PD, p.A.Mem[4096:8192], everything)
		wr := verbs.SendWR{WRID: 1, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, ImmData: mr.RKey()}
		if !e.can(verbs.CapSendInv) {
			e.refused(p, wr)
			return
		}
		p.A.Post(wr)
		if e.cfg.has(DeviatesInvalidate) {
			require.NotEqual(e.t, verbs.WCSuccess, p.A.Sent(1)[0].Status)
			e.inState(p.A.QP, verbs.QPErr)
			return
		}
		p.A.SentOK(1, verbs.WCLocalInv)

		fill(p.B.Mem[:64], 1)
		before := append([]byte(nil), p.A.Mem[4096:8192]...)
		into := writeWR(2, p.B.SGL(0, 64), p.A, 0)
		into.RemoteAddr, into.RKey = mr.Addr(), mr.RKey()
		p.B.Post(into)
		require.Equal(e.t, verbs.WCRemAccessErr, p.B.Sent(1)[0].Status)
		sameBytes(e.t, before, p.A.Mem[4096:8192])
	})
}
