package verbstest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testCQ(t *testing.T, s *suite) {
	s.run(t, "Create", func(e *env) {
		for _, n := range []int{1, 2, 100, 1000} {
			assert.GreaterOrEqual(e.t, e.cq(n, nil).Cap(), n)
		}
		for _, n := range []int{0, -1, e.attr.MaxCQE + 1} {
			_, err := e.ctx.CreateCQ(n, nil)
			assert.ErrorIs(e.t, err, verbs.ErrInvalid, "%d completions", n)
		}
	})

	s.run(t, "PollNothing", func(e *env) {
		cq := e.cq(4, nil)
		for _, wc := range [][]verbs.WC{nil, {}, make([]verbs.WC, 3)} {
			n, err := cq.Poll(wc)
			require.NoError(e.t, err)
			require.Zero(e.t, n)
		}
	})

	s.run(t, "PollInPieces", func(e *env) {
		p := e.pair(PairConfig{})
		for i := range 10 {
			p.A.Post(writeWR(uint64(i), nil, p.B, 0))
		}
		next := uint64(0)
		eventually(e.t, e.cfg.Timeout, func() bool {
			var wc [3]verbs.WC
			n, err := p.A.SendCQ.Poll(wc[:])
			require.NoError(e.t, err)
			for _, w := range wc[:n] {
				requireOK(e.t, w, p.A.QP, next, verbs.WCRDMAWrite)
				next++
			}
			for _, w := range wc[n:] {
				require.Zero(e.t, w, "past what was polled")
			}
			return next == 10
		}, "only %d completions", next)
	})

	s.run(t, "SharedByQPs", func(e *env) {
		// Several QPs complete into one CQ, each in its own order, told apart by
		// the QPN.
		const pairs, each = 4, 100
		cq := e.cq(pairs*each*2, nil)
		pd := e.pd()
		next := map[uint32]*[2]uint64{}
		ends := map[uint32]*Pair{}
		var all []*Pair
		for range pairs {
			p := e.pair(PairConfig{
				B: EndConfig{PD: pd, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: each, MaxRecvWR: each}},
				A: EndConfig{Cap: verbs.QPCap{MaxSendWR: each, MaxRecvWR: each}},
			})
			all = append(all, p)
			ends[p.B.QP.QPN()] = p
			next[p.B.QP.QPN()] = &[2]uint64{}
		}
		for _, p := range all {
			for i := range each {
				p.B.PostRecv(verbs.RecvWR{WRID: uint64(i)})
			}
		}
		for i := range each {
			for _, p := range all {
				p.A.Post(sendWR(uint64(i), nil))
				p.B.Post(writeWR(uint64(i), p.B.SGL(0, 8), p.A, 0))
			}
		}
		for _, wc := range collect(e.t, cq, pairs*each*2, e.cfg.Timeout) {
			p, n := ends[wc.QPN], next[wc.QPN]
			require.NotNil(e.t, p, "QPN of %+v", wc)
			require.Equal(e.t, verbs.WCSuccess, wc.Status)
			if wc.Opcode.IsRecv() {
				requireOK(e.t, wc, p.B.QP, n[0], verbs.WCRecv)
				n[0]++
			} else {
				requireOK(e.t, wc, p.B.QP, n[1], verbs.WCRDMAWrite)
				n[1]++
			}
		}
		for _, p := range all {
			p.A.Sent(each)
		}
	})

	s.run(t, "OneForSendAndRecv", func(e *env) {
		cq := e.cq(64, nil)
		p := e.pair(PairConfig{A: EndConfig{SendCQ: cq, RecvCQ: cq}})
		p.A.Recv(1, 0, 64)
		p.B.Recv(2, 0, 64)
		p.B.Post(sendWR(3, p.B.SGL(64, 10)))
		p.A.Post(sendWR(4, p.A.SGL(64, 10)))
		got := map[uint64]verbs.WCOpcode{}
		for _, wc := range collect(e.t, cq, 2, e.cfg.Timeout) {
			require.Equal(e.t, verbs.WCSuccess, wc.Status)
			got[wc.WRID] = wc.Opcode
		}
		require.Equal(e.t, map[uint64]verbs.WCOpcode{1: verbs.WCRecv, 4: verbs.WCSend}, got)
		p.B.ReceivedOK(2, verbs.WCRecv)
		p.B.SentOK(3, verbs.WCSend)
	})

	s.run(t, "OutlivesTheQP", func(e *env) {
		// A QP that goes leaves the CQ to the others. Its own completions may stay
		// or go with it: libibverbs drivers differ.
		cq := e.cq(64, nil)
		pd := e.pd()
		p := e.pair(PairConfig{B: EndConfig{PD: pd, RecvCQ: cq}})
		q := e.pair(PairConfig{B: EndConfig{PD: pd, RecvCQ: cq}})
		p.B.PostRecv(verbs.RecvWR{WRID: 1})
		q.B.PostRecv(verbs.RecvWR{WRID: 2})
		p.A.Post(sendWR(3, nil))
		p.A.SentOK(3, verbs.WCSend)
		qpn := p.B.QP.QPN()
		require.NoError(e.t, p.B.QP.Close())
		q.A.Post(sendWR(4, nil))
		q.A.SentOK(4, verbs.WCSend)
		wc := collect(e.t, cq, 1, e.cfg.Timeout)[0]
		if wc.QPN == qpn {
			require.Equal(e.t, verbs.WCSuccess, wc.Status)
			require.EqualValues(e.t, 1, wc.WRID)
			wc = collect(e.t, cq, 1, e.cfg.Timeout)[0]
		}
		requireOK(e.t, wc, q.B.QP, 2, verbs.WCRecv)
		e.quiet(cq)
	})
}
