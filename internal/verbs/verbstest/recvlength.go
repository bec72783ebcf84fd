package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testRecvLength: a message that does not fit its receive fails on both sides.
func testRecvLength(t *testing.T, s *suite) {
	tooSmall := func(e *env, message int, receive func(p *Pair) []verbs.SGE) {
		e.t.Helper()
		p := e.pair(PairConfig{})
		fill(p.A.Mem, 1)
		outside := append([]byte(nil), p.B.Mem[4096:]...)
		p.B.PostRecv(verbs.RecvWR{WRID: 200, SGList: receive(p)})
		p.B.Recv(201, 0, 4096)
		p.A.Post(sendWR(100, p.A.SGL(0, message)), sendWR(101, p.A.SGL(0, 8)))

		wcs := p.B.Received(2)
		want, told := []verbs.WCStatus{verbs.WCLocLenErr}, []verbs.WCStatus{verbs.WCRemInvReqErr}
		if e.cfg.has(DeviatesLocalStatus) {
			want = append(want, verbs.WCRemInvReqErr, verbs.WCLocQPOpErr)
			told = append(told, verbs.WCRemOpErr)
		}
		require.Contains(e.t, want, wcs[0].Status, "status %v", wcs[0].Status)
		require.EqualValues(e.t, 200, wcs[0].WRID)
		requireFlushed(e.t, wcs[1:], 201)

		wcs = p.A.Sent(2)
		if !e.cfg.has(DeviatesEarlySuccess) {
			require.Contains(e.t, told, wcs[0].Status, "status %v", wcs[0].Status)
			require.EqualValues(e.t, 100, wcs[0].WRID)
			requireFlushed(e.t, wcs[1:], 101)
		}
		e.inState(p.A.QP, verbs.QPErr)
		e.inState(p.B.QP, verbs.QPErr)
		sameBytes(e.t, outside, p.B.Mem[4096:], "memory outside of the receive")
	}

	s.run(t, "ByOne", func(e *env) {
		tooSmall(e, 65, func(p *Pair) []verbs.SGE { return p.B.SGL(0, 64) })
	})
	s.run(t, "Scattered", func(e *env) {
		tooSmall(e, 65, func(p *Pair) []verbs.SGE {
			if p.B.Cap.MaxRecvSGE < 2 {
				return p.B.SGL(0, 64)
			}
			return []verbs.SGE{p.B.SGE(0, 32), p.B.SGE(100, 32)}
		})
	})
	s.run(t, "NoBuffer", func(e *env) {
		tooSmall(e, 1, func(*Pair) []verbs.SGE { return nil })
	})
	s.run(t, "ManyPackets", func(e *env) {
		tooSmall(e, 60000, func(p *Pair) []verbs.SGE { return p.B.SGL(0, 4096) })
	})

	s.run(t, "Exact", func(e *env) {
		p := e.pair(PairConfig{})
		p.B.Recv(1, 0, 64)
		p.A.Post(sendWR(2, p.A.SGL(0, 64)))
		require.EqualValues(e.t, 64, p.B.ReceivedOK(1, verbs.WCRecv).ByteLen)
		p.A.SentOK(2, verbs.WCSend)
	})
}
