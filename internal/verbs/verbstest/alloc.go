package verbstest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testAllocations: the data path allocates nothing.
func testAllocations(t *testing.T, s *suite) {
	none := func(e *env, what string, f func()) {
		e.t.Helper()
		require.Zero(e.t, testing.AllocsPerRun(200, f), what)
	}

	s.run(t, "Write", func(e *env) {
		p := e.pair(PairConfig{})
		wrs := []verbs.SendWR{writeWR(1, p.A.SGL(0, 64), p.B, 0)}
		var wc [4]verbs.WC
		none(e, "PostSend and Poll", func() {
			if n, err := p.A.QP.PostSend(wrs); n != 1 || err != nil {
				panic(err)
			}
			pollOne(p.A.SendCQ, wc[:])
		})
		none(e, "Poll of an empty CQ", func() {
			if n, err := p.A.SendCQ.Poll(wc[:]); n != 0 || err != nil {
				panic(err)
			}
		})
	})

	s.needs(t, verbs.CapWriteImm, "WriteWithImm", func(e *env) {
		p := e.pair(PairConfig{})
		wrs := []verbs.SendWR{writeImmWR(1, p.A.SGL(0, 64), p.B, 0, 5)}
		if e.attr.MaxInlineData >= 64 {
			wrs[0] = inlineWR(verbs.WRRDMAWriteWithImm, 1, make([]byte, 64), p.B, 0)
		}
		rwrs := []verbs.RecvWR{{WRID: 1}}
		var wc [4]verbs.WC
		none(e, "PostRecv, PostSend and Poll", func() {
			if n, err := p.B.QP.PostRecv(rwrs); n != 1 || err != nil {
				panic(err)
			}
			if n, err := p.A.QP.PostSend(wrs); n != 1 || err != nil {
				panic(err)
			}
			pollOne(p.B.RecvCQ, wc[:])
			pollOne(p.A.SendCQ, wc[:])
		})
	})

	s.run(t, "Channel", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		found := func() bool { return true }
		none(e, "arm and wait", func() {
			if err := p.B.RecvCQ.ReqNotify(false); err != nil {
				panic(err)
			}
			if err := ch.WaitRead(found); err != nil {
				panic(err)
			}
			if err := ch.WaitWrite(found); err != nil {
				panic(err)
			}
		})
		far := time.Now().Add(time.Hour)
		none(e, "deadlines", func() {
			for _, d := range []time.Time{far, {}} {
				if err := ch.SetReadDeadline(d); err != nil {
					panic(err)
				}
				if err := ch.SetWriteDeadline(d); err != nil {
					panic(err)
				}
			}
		})
	})
}

// pollOne polls one successful completion.
func pollOne(cq verbs.CQ, wc []verbs.WC) {
	deadline := time.Now().Add(defaultTimeout)
	for turn := 0; ; turn++ {
		n, err := cq.Poll(wc)
		if err != nil || n > 0 && wc[0].Status != verbs.WCSuccess || time.Now().After(deadline) {
			panic("no completion")
		}
		if n > 0 {
			return
		}
		pause(turn)
	}
}
