package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testSignal(t *testing.T, s *suite) {
	s.run(t, "Unsignaled", func(e *env) {
		// Only signalled requests complete with a WC, which covers all before it.
		p := e.pair(PairConfig{})
		fill(p.A.Mem[:2000], 1)
		for i := range 20 {
			p.A.Post(unsignaled(writeWR(uint64(i), p.A.SGL(i*100, 100), p.B, i*100)))
		}
		p.A.Post(writeWR(99, nil, p.B, 0))
		p.A.SentOK(99, verbs.WCRDMAWrite)
		sameBytes(e.t, p.A.Mem[:2000], p.B.Mem[:2000])
		e.quiet(p.A.SendCQ)
	})

	s.run(t, "SigAll", func(e *env) {
		p := e.pair(PairConfig{A: EndConfig{SigAll: true}})
		for i := range 20 {
			p.A.Post(unsignaled(writeWR(uint64(i), p.A.SGL(0, 8), p.B, 0)))
		}
		for i, wc := range p.A.Sent(20) {
			requireOK(e.t, wc, p.A.QP, uint64(i), verbs.WCRDMAWrite)
		}
		e.quiet(p.A.SendCQ)
	})

	s.run(t, "InOrder", func(e *env) {
		// Completions of one send queue come in the order of the requests,
		// whatever each of them does.
		p := e.pair(PairConfig{})
		var want []verbs.WCOpcode
		var wrs []verbs.SendWR
		for i := range 60 {
			id, off := uint64(i), i*512
			switch i % 3 {
			case 0:
				wrs = append(wrs, readWR(id, p.A.SGL(off, 512), p.B, off))
				want = append(want, verbs.WCRDMARead)
			case 1:
				wrs = append(wrs, writeWR(id, p.A.SGL(off, 8), p.B, off))
				want = append(want, verbs.WCRDMAWrite)
			case 2:
				p.B.Recv(id, off, 512)
				wrs = append(wrs, sendWR(id, p.A.SGL(off, 300)))
				want = append(want, verbs.WCSend)
			}
		}
		p.A.Post(wrs...)
		if e.cfg.has(DeviatesReadOrder) {
			e.inTwoOrders(p.A, want)
			return
		}
		for i, wc := range p.A.Sent(len(wrs)) {
			requireOK(e.t, wc, p.A.QP, uint64(i), want[i])
		}
	})

	s.run(t, "FailureOfUnsignaled", func(e *env) {
		// A failure completes with a WC in any case (IBA 10.7.3.1).
		p := e.pair(PairConfig{})
		bad, want := unsignaled(writeWR(2, p.A.SGL(0, 8), p.B, 0)), []verbs.WCStatus{verbs.WCRemAccessErr}
		if e.cfg.has(DeviatesEarlySuccess) { // only what fails here is known here
			bad.SGList[0].LKey ^= 0x5a5a5a00
			want = e.localStatus()
		} else {
			bad.RKey ^= 0x5a5a5a00
		}
		p.A.Post(unsignaled(writeWR(1, p.A.SGL(0, 8), p.B, 0)), bad, unsignaled(sendWR(3, nil)))
		wcs := p.A.Sent(2)
		require.EqualValues(e.t, 2, wcs[0].WRID)
		require.Contains(e.t, want, wcs[0].Status)
		requireFlushed(e.t, wcs[1:], 3)
		e.quiet(p.A.SendCQ)
	})
}

// inTwoOrders requires that requests of these kinds complete with success, the READs in their
// order and the others in theirs.
func (e *env) inTwoOrders(x *End, want []verbs.WCOpcode) {
	e.t.Helper()
	var next [2]int // READ, other
	for _, wc := range x.Sent(len(want)) {
		i := 0
		if wc.Opcode != verbs.WCRDMARead {
			i = 1
		}
		for (want[next[i]] == verbs.WCRDMARead) != (i == 0) {
			next[i]++
		}
		requireOK(e.t, wc, x.QP, uint64(next[i]), want[next[i]])
		next[i]++
	}
}
