package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testFence: a request with FENCE starts only when all READs and atomics before
// it have completed, so it may send what they brought (IBA 10.8.3.3).
func testFence(t *testing.T, s *suite) {
	s.run(t, "ReadThenSend", func(e *env) {
		p := e.pair(PairConfig{})
		const n = 16 << 10
		for i := range 20 {
			fill(p.B.Mem[:n], i)
			p.B.Recv(1, 2*n, n)
			p.A.Post(
				unsignaled(readWR(2, p.A.SGL(0, n), p.B, 0)),
				withFlags(sendWR(3, p.A.SGL(0, n)), verbs.SendFence),
			)
			p.B.ReceivedOK(1, verbs.WCRecv)
			p.A.SentOK(3, verbs.WCSend)
			sameBytes(e.t, p.B.Mem[:n], p.B.Mem[2*n:3*n], "round %d", i)
		}
	})

	s.run(t, "ReadThenWrite", func(e *env) {
		p := e.pair(PairConfig{})
		const n = 16 << 10
		for i := range 20 {
			fill(p.B.Mem[:n], i)
			p.A.Post(
				readWR(2, p.A.SGL(0, n), p.B, 0),
				withFlags(writeWR(3, p.A.SGL(0, n), p.B, n), verbs.SendFence),
			)
			p.A.SentOK(2, verbs.WCRDMARead)
			p.A.SentOK(3, verbs.WCRDMAWrite)
			sameBytes(e.t, p.B.Mem[:n], p.B.Mem[n:2*n], "round %d", i)
		}
	})

	s.needs(t, verbs.CapAtomics, "AtomicThenWrite", func(e *env) {
		p := e.pair(PairConfig{})
		for i := range 50 {
			p.A.Post(
				unsignaled(fetchAdd(1, p.A, 0, p.B, 0, 1)),
				withFlags(writeWR(2, p.A.SGL(0, 8), p.B, 8), verbs.SendFence),
			)
			p.A.SentOK(2, verbs.WCRDMAWrite)
			require.EqualValues(e.t, i, word(p.B.Mem, 8))
		}
	})

	s.run(t, "ManyReads", func(e *env) {
		// More READs than the QP may keep outstanding, then a fence.
		p := e.pair(PairConfig{})
		fill(p.B.Mem[:40*512], 1)
		for i := range 40 {
			p.A.Post(unsignaled(readWR(1, p.A.SGL(i*512, 512), p.B, i*512)))
		}
		p.A.Post(withFlags(writeWR(2, p.A.SGL(0, 40*512), p.B, 40*512), verbs.SendFence))
		p.A.SentOK(2, verbs.WCRDMAWrite)
		sameBytes(e.t, p.B.Mem[:40*512], p.B.Mem[40*512:80*512])
	})
}
