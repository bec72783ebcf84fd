package verbstest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testOverrun: a CQ that got more completions than it holds is dead, which its
// owner learns from Poll and from an asynchronous event.
func testOverrun(t *testing.T, s *suite) {
	s.run(t, "Recv", func(e *env) {
		cq := e.cq(4, nil)
		n := cq.Cap() + 1
		caps := verbs.QPCap{MaxSendWR: n, MaxRecvWR: n}
		conn := DefaultConnAttr()
		conn.Timeout, conn.RetryCnt = 16, 3 // nobody may answer the last one
		p := e.pair(PairConfig{A: EndConfig{Cap: caps, Conn: &conn}, B: EndConfig{Cap: caps, RecvCQ: cq}})
		for i := range n {
			p.B.PostRecv(verbs.RecvWR{WRID: uint64(i)})
		}
		for i := range n {
			p.A.Post(sendWR(uint64(i), nil))
		}
		p.A.Sent(n - 1) // as many as fit have certainly arrived; the last may fail
		p.A.Sent(1)
		e.overrun(cq)
		e.event(verbs.EventCQErr, func(ev verbs.AsyncEvent) bool { return ev.CQ == cq })
		e.inState(p.B.QP, verbs.QPErr)
	})

	s.run(t, "Send", func(e *env) {
		cq := e.cq(4, nil)
		n := cq.Cap() + 1
		p := e.pair(PairConfig{A: EndConfig{Cap: verbs.QPCap{MaxSendWR: 2 * n}, SendCQ: cq}})
		p.B.PostRecv(verbs.RecvWR{WRID: 1})
		for i := range n {
			p.A.Post(writeWR(uint64(i), nil, p.B, 0))
		}
		// On a device that executes later the completions need time to come.
		e.event(verbs.EventCQErr, func(ev verbs.AsyncEvent) bool { return ev.CQ == cq })
		e.overrun(cq)
	})

	s.run(t, "FullIsNoOverrun", func(e *env) {
		cq := e.cq(4, nil)
		n := cq.Cap()
		caps := verbs.QPCap{MaxSendWR: n, MaxRecvWR: n}
		p := e.pair(PairConfig{A: EndConfig{Cap: caps}, B: EndConfig{Cap: caps, RecvCQ: cq}})
		for range 5 {
			for i := range n {
				p.B.PostRecv(verbs.RecvWR{WRID: uint64(i)})
			}
			for i := range n {
				p.A.Post(sendWR(uint64(i), nil))
			}
			p.A.Sent(n)
			for i, wc := range p.B.Received(n) {
				requireOK(e.t, wc, p.B.QP, uint64(i), verbs.WCRecv)
			}
		}
		require.Equal(e.t, verbs.QPRTS, p.B.QP.State())
	})
}

// overrun requires that Poll says that completions were lost. Those that were in
// the CQ before may come first.
func (e *env) overrun(cq verbs.CQ) {
	e.t.Helper()
	polled := 0
	eventually(e.t, e.cfg.Timeout, func() bool {
		var wc [2]verbs.WC
		n, err := cq.Poll(wc[:])
		polled += n
		require.LessOrEqual(e.t, polled, cq.Cap(), "the CQ held more than its capacity")
		if err != nil {
			require.True(e.t, errors.Is(err, verbs.ErrCQOverrun), "error %v", err)
			return true
		}
		return false
	}, "no overrun is reported")
	_, err := cq.Poll(make([]verbs.WC, 1))
	require.ErrorIs(e.t, err, verbs.ErrCQOverrun, "once dead, always dead")
}
