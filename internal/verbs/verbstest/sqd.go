package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testSQD: a QP whose send queue is drained finishes what it began, starts
// nothing new, says so, and can go on (IBA 10.3.1.5).
func testSQD(t *testing.T, s *suite) {
	sqd := verbs.QPAttr{State: verbs.QPSQD}
	rts := verbs.QPAttr{State: verbs.QPRTS}

	s.run(t, "HoldsAndResumes", func(e *env) {
		p := e.pair(PairConfig{})
		exchange(e.t, p)
		require.NoError(e.t, p.A.QP.Modify(&sqd, verbs.QPMaskState))
		require.Equal(e.t, verbs.QPSQD, p.A.QP.State())
		e.event(verbs.EventSQDrained, ofQP(p.A.QP))
		fill(p.A.Mem[:100], 50)
		before := append([]byte(nil), p.B.Mem[5000:5100]...)
		p.B.Recv(1, 6000, 100)
		p.A.Post(writeWR(11, p.A.SGL(0, 100), p.B, 5000), sendWR(12, p.A.SGL(0, 100)), readWR(13, p.A.SGL(3000, 8), p.B, 0))
		e.quiet(p.A.SendCQ, p.B.RecvCQ)
		sameBytes(e.t, before, p.B.Mem[5000:5100])

		// The receive side works meanwhile, also as a target.
		p.A.Recv(2, 8000, 100)
		p.B.Post(writeWR(21, p.B.SGL(6500, 10), p.A, 9000), sendWR(22, p.B.SGL(6500, 10)))
		p.A.ReceivedOK(2, verbs.WCRecv)
		p.B.SentOK(21, verbs.WCRDMAWrite)
		p.B.SentOK(22, verbs.WCSend)

		require.NoError(e.t, p.A.QP.Modify(&rts, verbs.QPMaskState))
		p.A.SentOK(11, verbs.WCRDMAWrite)
		p.A.SentOK(12, verbs.WCSend)
		p.A.SentOK(13, verbs.WCRDMARead)
		p.B.ReceivedOK(1, verbs.WCRecv)
		sameBytes(e.t, p.A.Mem[:100], p.B.Mem[5000:5100])
		sameBytes(e.t, p.A.Mem[:100], p.B.Mem[6000:6100])
	})

	s.run(t, "FinishesWhatItBegan", func(e *env) {
		// Whether a SEND that waits for a receive was begun is the device's view.
		// Begun, it is through when the queue is drained; else it waits for RTS.
		p := e.pair(PairConfig{})
		exchange(e.t, p)
		p.A.Post(sendWR(1, p.A.SGL(0, 8)))
		e.quiet(p.A.SendCQ)
		require.NoError(e.t, p.A.QP.Modify(&sqd, verbs.QPMaskState))
		p.B.Recv(2, 0, 8)
		e.event(verbs.EventSQDrained, ofQP(p.A.QP))
		var wc [1]verbs.WC
		begun, err := p.B.RecvCQ.Poll(wc[:])
		require.NoError(e.t, err)
		if begun == 0 {
			e.quiet(p.B.RecvCQ, p.A.SendCQ)
		}
		require.NoError(e.t, p.A.QP.Modify(&rts, verbs.QPMaskState))
		if begun == 0 {
			wc[0] = p.B.Received(1)[0]
		}
		requireOK(e.t, wc[0], p.B.QP, 2, verbs.WCRecv)
		p.A.SentOK(1, verbs.WCSend)
		exchange(e.t, p)
	})

	s.run(t, "Again", func(e *env) {
		p := e.pair(PairConfig{})
		for range 5 {
			require.NoError(e.t, p.A.QP.Modify(&sqd, verbs.QPMaskState))
			e.event(verbs.EventSQDrained, ofQP(p.A.QP))
			require.NoError(e.t, p.A.QP.Modify(&rts, verbs.QPMaskState))
			exchange(e.t, p)
		}
	})

	s.run(t, "FlushFromSQD", func(e *env) {
		p := e.pair(PairConfig{})
		exchange(e.t, p)
		require.NoError(e.t, p.A.QP.Modify(&sqd, verbs.QPMaskState))
		e.event(verbs.EventSQDrained, ofQP(p.A.QP))
		p.A.Post(sendWR(1, nil), unsignaled(sendWR(2, nil)))
		p.A.Recv(3, 0, 8)
		e.toErr(p.A.QP)
		requireFlushed(e.t, p.A.Sent(2), 1, 2)
		requireFlushed(e.t, p.A.Received(1), 3)
	})
}
