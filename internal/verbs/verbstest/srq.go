package verbstest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// shared makes n pairs whose B sides take their receives from one SRQ into one CQ.
func (e *env) shared(n int, attr verbs.SRQInitAttr) (verbs.SRQ, []*Pair) {
	e.t.Helper()
	pd := e.pd()
	srq := e.srq(pd, attr)
	cq := e.cq(256, nil)
	var pairs []*Pair
	for range n {
		pairs = append(pairs, e.pair(PairConfig{B: EndConfig{PD: pd, SRQ: srq, RecvCQ: cq}}))
	}
	return srq, pairs
}

func (e *env) postSRQ(srq verbs.SRQ, wrs ...verbs.RecvWR) {
	e.t.Helper()
	n, err := srq.PostRecv(wrs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), n)
}

func testSRQ(t *testing.T, s *suite) {
	run := func(name string, f func(e *env)) { s.needs(t, verbs.CapSRQ, name, f) }

	run("SharedByQPs", func(e *env) {
		// Messages of all QPs take the receives in the order of the posts.
		srq, pairs := e.shared(3, verbs.SRQInitAttr{MaxWR: 64, MaxSGE: 1})
		home := pairs[0].B
		for i := range 30 {
			e.postSRQ(srq, verbs.RecvWR{WRID: uint64(i), SGList: home.SGL(i*64, 64)})
		}
		for i := range 30 {
			p := pairs[i%3]
			fill(p.A.Mem[:64], i)
			p.A.Post(sendWR(1, p.A.SGL(0, 64)))
			requireOK(e.t, home.Received(1)[0], p.B.QP, uint64(i), verbs.WCRecv)
			p.A.SentOK(1, verbs.WCSend)
			sameBytes(e.t, p.A.Mem[:64], home.Mem[i*64:i*64+64])
		}
	})

	run("AtOnce", func(e *env) {
		// All QPs at once: each receive is used once.
		srq, pairs := e.shared(3, verbs.SRQInitAttr{MaxWR: 64, MaxSGE: 1})
		const each = 20
		for i := range 3 * each {
			e.postSRQ(srq, verbs.RecvWR{WRID: uint64(i), SGList: pairs[0].B.SGL(i*8, 8)})
		}
		for range each {
			for _, p := range pairs {
				p.A.Post(sendWR(1, p.A.SGL(0, 8)))
			}
		}
		seen, by := map[uint64]bool{}, map[uint32]int{}
		for _, wc := range pairs[0].B.Received(3 * each) {
			require.Equal(e.t, verbs.WCSuccess, wc.Status)
			require.False(e.t, seen[wc.WRID])
			seen[wc.WRID] = true
			by[wc.QPN]++
		}
		for _, p := range pairs {
			assert.Equal(e.t, each, by[p.B.QP.QPN()])
			p.A.Sent(each)
		}
	})

	run("WriteWithImm", func(e *env) {
		e.require(verbs.CapWriteImm)
		srq, pairs := e.shared(2, verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		for i, p := range pairs {
			e.postSRQ(srq, verbs.RecvWR{WRID: uint64(i)})
			p.A.Post(writeImmWR(9, p.A.SGL(0, 8), p.B, 0, uint32(i)))
			wc := requireOK(e.t, p.B.Received(1)[0], p.B.QP, uint64(i), verbs.WCRecvRDMAWithImm)
			require.EqualValues(e.t, i, wc.ImmData)
			p.A.SentOK(9, verbs.WCRDMAWrite)
		}
	})

	run("RNR", func(e *env) {
		// An empty SRQ lets the sender wait.
		e.waitingSends()
		srq, pairs := e.shared(2, verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		p := pairs[1]
		p.A.Post(sendWR(1, p.A.SGL(0, 8)))
		e.quiet(p.A.SendCQ)
		e.postSRQ(srq, verbs.RecvWR{WRID: 2, SGList: p.B.SGL(0, 8)})
		requireOK(e.t, p.B.Received(1)[0], p.B.QP, 2, verbs.WCRecv)
		p.A.SentOK(1, verbs.WCSend)
	})

	run("Limit", func(e *env) {
		// The event comes once, when fewer are left than the limit says.
		srq, pairs := e.shared(2, verbs.SRQInitAttr{MaxWR: 32, MaxSGE: 1})
		p := pairs[0]
		take := func() {
			e.t.Helper()
			p.A.Post(sendWR(1, nil))
			p.B.Received(1)
			p.A.SentOK(1, verbs.WCSend)
		}
		ours := func(ev verbs.AsyncEvent) bool { return ev.SRQ == srq }
		for range 10 {
			e.postSRQ(srq, verbs.RecvWR{})
		}
		for range 2 {
			require.NoError(e.t, srq.SetLimit(8))
			take() // 9 left
			take() // 8 left: not yet fewer
			e.noEvent(verbs.EventSRQLimitReached)
			take() // 7 left
			e.event(verbs.EventSRQLimitReached, ours)
			take()
			e.noEvent(verbs.EventSRQLimitReached)
			for range 4 {
				e.postSRQ(srq, verbs.RecvWR{})
			}
		}
		require.NoError(e.t, srq.SetLimit(8))
		require.NoError(e.t, srq.SetLimit(0))
		for range 5 {
			take()
		}
		e.noEvent(verbs.EventSRQLimitReached)
	})

	run("Full", func(e *env) {
		srq := e.srq(e.pd(), verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		n := 0
		for ; ; n++ {
			_, err := srq.PostRecv([]verbs.RecvWR{{WRID: uint64(n)}})
			if errors.Is(err, verbs.ErrQueueFull) {
				break
			}
			require.NoError(e.t, err)
			require.Less(e.t, n, 64, "the queue takes more than it said")
		}
		require.GreaterOrEqual(e.t, n, 8)
	})

	run("NoQueueOfItsOwn", func(e *env) {
		srq, pairs := e.shared(1, verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		n, err := pairs[0].B.QP.PostRecv([]verbs.RecvWR{{}})
		require.ErrorIs(e.t, err, verbs.ErrInvalid)
		require.Zero(e.t, n)
		_, init, err := pairs[0].B.QP.Query()
		require.NoError(e.t, err)
		require.Equal(e.t, srq, init.SRQ)
	})

	run("OutlivesErr", func(e *env) {
		// A QP in ERR takes no receives with it: the others go on.
		srq, pairs := e.shared(2, verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		for i := range 4 {
			e.postSRQ(srq, verbs.RecvWR{WRID: uint64(i)})
		}
		e.toErr(pairs[0].B.QP)
		e.quiet(pairs[0].B.RecvCQ)
		require.NoError(e.t, pairs[0].B.QP.Close())
		p := pairs[1]
		for i := range 4 {
			p.A.Post(sendWR(9, nil))
			requireOK(e.t, p.B.Received(1)[0], p.B.QP, uint64(i), verbs.WCRecv)
			p.A.SentOK(9, verbs.WCSend)
		}
	})

	run("Busy", func(e *env) {
		srq, pairs := e.shared(1, verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		require.ErrorIs(e.t, srq.Close(), verbs.ErrBusy)
		require.NoError(e.t, pairs[0].B.QP.Close())
		require.NoError(e.t, srq.Close())
	})

	run("Limits", func(e *env) {
		pd := e.pd()
		for name, attr := range map[string]verbs.SRQInitAttr{
			"no requests":   {MaxWR: 0, MaxSGE: 1},
			"negative":      {MaxWR: -1, MaxSGE: 1},
			"too many":      {MaxWR: e.attr.MaxSRQWR + 1, MaxSGE: 1},
			"too many SGEs": {MaxWR: 1, MaxSGE: e.attr.MaxSRQSGE + 1},
		} {
			_, err := pd.CreateSRQ(&attr)
			assert.ErrorIs(e.t, err, verbs.ErrInvalid, name)
		}
	})

	s.run(t, "WithoutIt", func(e *env) {
		if e.can(verbs.CapSRQ) {
			e.t.Skip("the device has SRQs")
		}
		_, err := e.pd().CreateSRQ(&verbs.SRQInitAttr{MaxWR: 1, MaxSGE: 1})
		require.ErrorIs(e.t, err, verbs.ErrNotSupported)
	})
}
