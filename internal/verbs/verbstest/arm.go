package verbstest

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// getEvent waits for an event and requires that it is of the CQ.
func (e *env) getEvent(ch verbs.CompChannel, want verbs.CQ) {
	e.t.Helper()
	require.NoError(e.t, ch.SetReadDeadline(time.Now().Add(e.cfg.Timeout)))
	cq, err := ch.GetEvent()
	require.NoError(e.t, err)
	require.Equal(e.t, want, cq)
}

// noCQEvent requires that the channel stays silent.
func (e *env) noCQEvent(ch verbs.CompChannel) {
	e.t.Helper()
	require.NoError(e.t, ch.SetReadDeadline(time.Now().Add(e.cfg.Quiet)))
	cq, err := ch.GetEvent()
	require.ErrorIs(e.t, err, os.ErrDeadlineExceeded, "event of %v", cq)
}

// testArm tests ReqNotify through GetEvent.
func testArm(t *testing.T, s *suite) {
	// message sends from A to B, which has a receive, and polls both completions.
	message := func(p *Pair, flags verbs.SendFlags) {
		p.A.t.Helper()
		p.B.PostRecv(verbs.RecvWR{WRID: 1})
		p.A.Post(withFlags(sendWR(2, nil), flags))
		p.B.ReceivedOK(1, verbs.WCRecv)
		p.A.SentOK(2, verbs.WCSend)
	}

	s.run(t, "Next", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		for range 5 {
			require.NoError(e.t, p.B.RecvCQ.ReqNotify(false))
			message(p, 0)
			e.getEvent(ch, p.B.RecvCQ)
		}
	})

	s.run(t, "OnlyWhenArmed", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		message(p, 0)
		e.noCQEvent(ch)
		require.NoError(e.t, p.B.RecvCQ.ReqNotify(false))
		e.noCQEvent(ch) // nothing came since
		message(p, 0)
		e.getEvent(ch, p.B.RecvCQ)
		message(p, 0) // the event disarmed it
		e.noCQEvent(ch)
	})

	s.run(t, "OnceForMany", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		require.NoError(e.t, p.B.RecvCQ.ReqNotify(false))
		require.NoError(e.t, p.B.RecvCQ.ReqNotify(false))
		message(p, 0)
		message(p, 0)
		message(p, 0)
		e.getEvent(ch, p.B.RecvCQ)
		e.noCQEvent(ch)
	})

	s.run(t, "SendSide", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{A: EndConfig{Channel: ch}})
		require.NoError(e.t, p.A.SendCQ.ReqNotify(false))
		p.A.Post(writeWR(1, p.A.SGL(0, 8), p.B, 0))
		e.getEvent(ch, p.A.SendCQ)
		p.A.SentOK(1, verbs.WCRDMAWrite)
		require.NoError(e.t, p.A.SendCQ.ReqNotify(false))
		p.A.Post(unsignaled(writeWR(1, p.A.SGL(0, 8), p.B, 0)))
		e.noCQEvent(ch)
	})

	s.run(t, "SolicitedOnly", func(e *env) {
		if e.cfg.has(DeviatesSolicited) {
			e.t.Skip("solicited completions wake nobody on this device")
		}
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		require.NoError(e.t, p.B.RecvCQ.ReqNotify(true))
		message(p, 0)
		message(p, 0)
		e.noCQEvent(ch)
		message(p, verbs.SendSolicited)
		e.getEvent(ch, p.B.RecvCQ)
		message(p, verbs.SendSolicited)
		e.noCQEvent(ch)
	})

	s.needs(t, verbs.CapWriteImm, "SolicitedWriteWithImm", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		for _, solicited := range []verbs.SendFlags{0, verbs.SendSolicited} {
			require.NoError(e.t, p.B.RecvCQ.ReqNotify(true))
			p.B.PostRecv(verbs.RecvWR{WRID: 1})
			p.A.Post(withFlags(writeImmWR(2, p.A.SGL(0, 8), p.B, 0, 5), solicited))
			p.B.ReceivedOK(1, verbs.WCRecvRDMAWithImm)
			p.A.SentOK(2, verbs.WCRDMAWrite)
			if solicited == 0 {
				e.noCQEvent(ch)
			} else {
				e.getEvent(ch, p.B.RecvCQ)
			}
		}
	})

	s.run(t, "AnyBeatsSolicited", func(e *env) {
		// Armed both ways, any completion counts (IBA 11.4.2.2).
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		for _, order := range [][2]bool{{false, true}, {true, false}} {
			if order[1] && e.cfg.has(DeviatesSolicited) {
				continue // it would be armed for what does not wake
			}
			require.NoError(e.t, p.B.RecvCQ.ReqNotify(order[0]))
			require.NoError(e.t, p.B.RecvCQ.ReqNotify(order[1]))
			message(p, 0)
			e.getEvent(ch, p.B.RecvCQ)
		}
	})

	s.run(t, "ErrorIsSolicited", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		p.B.Recv(1, 0, 8)
		require.NoError(e.t, p.B.RecvCQ.ReqNotify(true))
		require.NoError(e.t, p.B.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
		if !e.cfg.has(DeviatesQuietFlush) {
			e.getEvent(ch, p.B.RecvCQ)
		}
		requireFlushed(e.t, p.B.Received(1), 1)
	})

	s.run(t, "SeveralCQs", func(e *env) {
		// Events say which CQ they are for.
		ch := e.channel()
		p, q := e.pair(PairConfig{B: EndConfig{Channel: ch}}), e.pair(PairConfig{B: EndConfig{Channel: ch}})
		for _, x := range []*Pair{p, q, q, p} {
			require.NoError(e.t, x.B.RecvCQ.ReqNotify(false))
			message(x, 0)
			e.getEvent(ch, x.B.RecvCQ)
		}
		require.NoError(e.t, p.B.RecvCQ.ReqNotify(false))
		require.NoError(e.t, q.B.RecvCQ.ReqNotify(false))
		message(q, 0)
		message(p, 0)
		require.NoError(e.t, ch.SetReadDeadline(time.Now().Add(e.cfg.Timeout)))
		seen := map[verbs.CQ]int{}
		for range 2 {
			cq, err := ch.GetEvent()
			require.NoError(e.t, err)
			seen[cq]++
		}
		require.Equal(e.t, map[verbs.CQ]int{p.B.RecvCQ: 1, q.B.RecvCQ: 1}, seen)
		e.noCQEvent(ch)
	})

	s.run(t, "WhileWaiting", func(e *env) {
		// GetEvent sleeps until the peer, which knows nothing of it, sends.
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		require.NoError(e.t, ch.SetReadDeadline(time.Now().Add(e.cfg.Timeout)))
		for range 20 {
			p.B.PostRecv(verbs.RecvWR{WRID: 1})
			require.NoError(e.t, p.B.RecvCQ.ReqNotify(false))
			errs := make(chan error, 1)
			go func() {
				_, err := ch.GetEvent()
				errs <- err
			}()
			p.A.Post(sendWR(2, nil))
			require.NoError(e.t, receive(e, errs))
			p.B.ReceivedOK(1, verbs.WCRecv)
			p.A.SentOK(2, verbs.WCSend)
		}
	})

	s.run(t, "WithoutChannel", func(e *env) {
		// A CQ that is only polled may be armed; nothing comes of it.
		p := e.pair(PairConfig{})
		if err := p.B.RecvCQ.ReqNotify(false); err != nil {
			require.ErrorIs(e.t, err, verbs.ErrInvalid)
		}
		message(p, 0)
	})
}
