package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func ids(from, n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(from + i)
	}
	return list
}

func (e *env) toErr(qp verbs.QP) {
	e.t.Helper()
	require.NoError(e.t, qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
	require.Equal(e.t, verbs.QPErr, qp.State())
}

// testFlush: a QP in ERR completes everything that was posted, in order, and
// what is posted from then on.
func testFlush(t *testing.T, s *suite) {
	s.run(t, "Receives", func(e *env) {
		p := e.pair(PairConfig{})
		n := p.A.Cap.MaxRecvWR
		for i := range n {
			p.A.Recv(uint64(i), 0, 8)
		}
		e.toErr(p.A.QP)
		wcs := p.A.Received(n)
		requireFlushed(e.t, wcs, ids(0, n)...)
		for _, wc := range wcs {
			require.Equal(e.t, p.A.QP.QPN(), wc.QPN)
		}
		e.quiet(p.A.RecvCQ)
	})

	s.run(t, "SendsThatWait", func(e *env) {
		e.waitingSends()
		p := e.pair(PairConfig{})
		p.Settle()
		for i := range 20 {
			wr := sendWR(uint64(i), p.A.SGL(0, 8))
			if i%3 == 0 {
				wr = unsignaled(wr)
			}
			p.A.Post(wr)
		}
		e.quiet(p.A.SendCQ)
		e.toErr(p.A.QP)
		requireFlushed(e.t, p.A.Sent(20), ids(0, 20)...)
		e.quiet(p.A.SendCQ)
	})

	s.run(t, "WhatIsPostedInErr", func(e *env) {
		if e.cfg.has(DeviatesErrPosts) {
			e.t.Skip("what is posted in ERR does not complete on this device")
		}
		p := e.pair(PairConfig{})
		e.toErr(p.A.QP)
		for round := range 3 {
			for i := range 10 {
				p.A.Post(unsignaled(writeWR(uint64(10*round+i), p.A.SGL(0, 8), p.B, 0)))
				p.A.Recv(uint64(100+10*round+i), 0, 8)
			}
			requireFlushed(e.t, p.A.Sent(10), ids(10*round, 10)...)
			requireFlushed(e.t, p.A.Received(10), ids(100+10*round, 10)...)
		}
		sameBytes(e.t, make([]byte, 8), p.B.Mem[:8])
	})

	s.run(t, "PostedBeforeAndInErr", func(e *env) {
		p := e.pair(PairConfig{})
		for i := range 10 {
			p.A.Recv(uint64(i), 0, 8)
		}
		e.toErr(p.A.QP)
		requireFlushed(e.t, p.A.Received(3), ids(0, 3)...)
		if e.cfg.has(DeviatesErrPosts) {
			requireFlushed(e.t, p.A.Received(7), ids(3, 7)...)
			return
		}
		for i := range 5 {
			p.A.Recv(uint64(10+i), 0, 8)
		}
		requireFlushed(e.t, p.A.Received(12), ids(3, 12)...)
		e.quiet(p.A.RecvCQ)
	})

	s.run(t, "FromInit", func(e *env) {
		a := e.end(EndConfig{})
		a.Init()
		a.Recv(1, 0, 8)
		a.Recv(2, 0, 8)
		e.toErr(a.QP)
		requireFlushed(e.t, a.Received(2), 1, 2)
	})

	s.run(t, "MessagesBeforeTheError", func(e *env) {
		// What the peer knows to be delivered is delivered, then comes the flush.
		p := e.pair(PairConfig{})
		for i := range 20 {
			p.B.Recv(uint64(i), i*8, 8)
		}
		for i := range 10 {
			fill(p.A.Mem[i*8:i*8+8], i)
			p.A.Post(sendWR(uint64(i), p.A.SGL(i*8, 8)))
		}
		p.A.Sent(10)
		e.delivered(p)
		e.toErr(p.B.QP)
		for i, wc := range p.B.Received(10) {
			requireOK(e.t, wc, p.B.QP, uint64(i), verbs.WCRecv)
		}
		requireFlushed(e.t, p.B.Received(10), ids(10, 10)...)
		sameBytes(e.t, p.A.Mem[:80], p.B.Mem[:80])
	})
}
