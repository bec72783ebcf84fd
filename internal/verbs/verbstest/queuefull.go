package verbstest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testQueueFull(t *testing.T, s *suite) {
	small := verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8}

	s.run(t, "Slots", func(e *env) {
		// Unsignalled requests hold their slots until a later signalled completion
		// is polled, however long ago they were executed.
		p := e.pair(PairConfig{A: EndConfig{Cap: small}})
		n := p.A.Cap.MaxSendWR
		one := func(id int) verbs.SendWR { return unsignaled(writeWR(uint64(id), p.A.SGL(0, 8), p.B, 0)) }
		for range 5 {
			for i := range n - 1 {
				p.A.Post(one(i))
			}
			p.A.Post(withFlags(one(n), verbs.SendSignaled))
			if !e.cfg.has(DeviatesEarlySlots) {
				taken, err := p.A.QP.PostSend([]verbs.SendWR{one(100)})
				require.ErrorIs(e.t, err, verbs.ErrQueueFull)
				require.Zero(e.t, taken)
			}
			p.A.SentOK(uint64(n), verbs.WCRDMAWrite)
		}
		e.quiet(p.A.SendCQ)
	})

	s.run(t, "SlotsBehindTheSignal", func(e *env) {
		// A completion gives back its own slot and those before it, not those after.
		if e.cfg.has(DeviatesEarlySlots) {
			e.t.Skip("slots come back early on this device")
		}
		p := e.pair(PairConfig{A: EndConfig{Cap: small}})
		n := p.A.Cap.MaxSendWR
		wr := unsignaled(writeWR(0, p.A.SGL(0, 8), p.B, 0))
		wrs := make([]verbs.SendWR, n)
		for i := range wrs {
			wrs[i] = wr
		}
		wrs[2].WRID, wrs[2].Flags = 2, verbs.SendSignaled
		p.A.Post(wrs...)
		p.A.SentOK(2, verbs.WCRDMAWrite)
		taken, err := p.A.QP.PostSend([]verbs.SendWR{wr, wr, withFlags(wr, verbs.SendSignaled), wr})
		require.ErrorIs(e.t, err, verbs.ErrQueueFull)
		require.Equal(e.t, 3, taken)
		p.A.SentOK(0, verbs.WCRDMAWrite)
		p.A.Post(wrs...)
		p.A.SentOK(2, verbs.WCRDMAWrite)
	})

	s.run(t, "WaitingRequests", func(e *env) {
		// Requests that wait for a receive fill the queue; receives empty it.
		e.waitingSends()
		p := e.pair(PairConfig{A: EndConfig{Cap: small}, B: EndConfig{Cap: verbs.QPCap{MaxRecvWR: 256}}})
		n := 0
		for ; ; n++ {
			_, err := p.A.QP.PostSend([]verbs.SendWR{sendWR(uint64(n), p.A.SGL(0, 8))})
			if errors.Is(err, verbs.ErrQueueFull) {
				break
			}
			require.NoError(e.t, err)
			require.Less(e.t, n, 2*p.A.Cap.MaxSendWR+2, "the queue takes more than it said")
		}
		require.GreaterOrEqual(e.t, n, p.A.Cap.MaxSendWR)
		for i := range n {
			p.B.Recv(uint64(i), 0, 8)
			p.B.ReceivedOK(uint64(i), verbs.WCRecv)
			p.A.SentOK(uint64(i), verbs.WCSend)
		}
		for i := range n {
			p.B.Recv(uint64(i), 0, 8)
			p.A.Post(sendWR(uint64(i), p.A.SGL(0, 8)))
		}
		p.A.Sent(n)
		p.B.Received(n)
	})

	s.run(t, "PartialPost", func(e *env) {
		// n says how many were taken, and those are executed.
		p := e.pair(PairConfig{A: EndConfig{Cap: small}, B: EndConfig{Cap: verbs.QPCap{MaxRecvWR: 256}}})
		wrs := make([]verbs.SendWR, 4*p.A.Cap.MaxSendWR+4)
		for i := range wrs {
			wrs[i] = sendWR(uint64(i), p.A.SGL(0, 8)) // nobody receives yet
		}
		receives := func(n int) {
			for i := range n {
				p.B.Recv(uint64(i), 0, 8)
			}
		}
		if e.cfg.has(DeviatesNoRNR) {
			receives(len(wrs))
		}
		n, err := p.A.QP.PostSend(wrs)
		if n < len(wrs) || !e.cfg.has(DeviatesNoRNR) { // what does not wait may be done before the queue is full
			require.ErrorIs(e.t, err, verbs.ErrQueueFull)
		}
		require.GreaterOrEqual(e.t, n, p.A.Cap.MaxSendWR)
		if !e.cfg.has(DeviatesNoRNR) {
			receives(n)
		}
		for i, wc := range p.A.Sent(n) {
			requireOK(e.t, wc, p.A.QP, uint64(i), verbs.WCSend)
		}
		for i, wc := range p.B.Received(n) {
			requireOK(e.t, wc, p.B.QP, uint64(i), verbs.WCRecv)
		}
		e.quiet(p.B.RecvCQ)
	})

	s.run(t, "Recv", func(e *env) {
		p := e.pair(PairConfig{B: EndConfig{Cap: small}})
		n := 0
		for ; ; n++ {
			_, err := p.B.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(n), SGList: p.B.SGL(0, 8)}})
			if errors.Is(err, verbs.ErrQueueFull) {
				break
			}
			require.NoError(e.t, err)
			require.Less(e.t, n, 2*p.B.Cap.MaxRecvWR+2, "the queue takes more than it said")
		}
		require.GreaterOrEqual(e.t, n, p.B.Cap.MaxRecvWR)
		// Each message consumed gives one place back.
		for i := range 3 * n {
			p.A.Post(sendWR(1, p.A.SGL(0, 8)))
			p.A.SentOK(1, verbs.WCSend)
			p.B.ReceivedOK(uint64(i), verbs.WCRecv)
			p.B.Recv(uint64(n+i), 0, 8)
		}
	})
}
