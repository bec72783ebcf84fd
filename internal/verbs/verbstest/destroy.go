package verbstest

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func testDestroy(t *testing.T, s *suite) {
	s.run(t, "Order", func(e *env) {
		// What others use cannot be destroyed, and is as good as before after
		// the attempt.
		ch := e.channel()
		p := e.pair(PairConfig{A: EndConfig{Channel: ch}})
		for name, c := range map[string]io.Closer{
			"Context": e.ctx, "PD": p.A.PD, "channel": ch, "send CQ": p.A.SendCQ, "recv CQ": p.A.RecvCQ,
		} {
			assert.ErrorIs(e.t, c.Close(), verbs.ErrBusy, name)
		}
		exchange(e.t, p)
		require.NoError(e.t, p.A.QP.Close())
		assert.ErrorIs(e.t, p.A.PD.Close(), verbs.ErrBusy, "the MR is left")
		assert.ErrorIs(e.t, ch.Close(), verbs.ErrBusy, "the CQs are left")
		require.NoError(e.t, p.A.SendCQ.Close())
		assert.ErrorIs(e.t, ch.Close(), verbs.ErrBusy, "a CQ is left")
		require.NoError(e.t, p.A.RecvCQ.Close())
		require.NoError(e.t, ch.Close())
		require.NoError(e.t, p.A.MR.Close())
		require.NoError(e.t, p.A.PD.Close())
		assert.ErrorIs(e.t, e.ctx.Close(), verbs.ErrBusy, "the other End is left")
	})

	s.run(t, "Twice", func(e *env) {
		ch := e.channel()
		p := e.pair(PairConfig{A: EndConfig{Channel: ch}})
		for _, c := range []io.Closer{p.A.QP, p.A.SendCQ, p.A.RecvCQ, ch, p.A.MR, p.A.PD} {
			require.NoError(e.t, c.Close(), "%T", c)
			for range 2 {
				err := c.Close()
				assert.ErrorIs(e.t, err, verbs.ErrClosed, "%T", c)
			}
		}
	})

	s.run(t, "UseAfterwards", func(e *env) {
		p := e.pair(PairConfig{})
		a := p.A
		sge := a.SGL(0, 8)
		require.NoError(e.t, a.QP.Close())
		_, err := a.QP.PostSend([]verbs.SendWR{sendWR(1, sge)})
		assert.ErrorIs(e.t, err, verbs.ErrClosed)
		_, err = a.QP.PostRecv([]verbs.RecvWR{{SGList: sge}})
		assert.ErrorIs(e.t, err, verbs.ErrClosed)
		assert.ErrorIs(e.t, a.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState), verbs.ErrClosed)
		_, _, err = a.QP.Query()
		assert.ErrorIs(e.t, err, verbs.ErrClosed)

		require.NoError(e.t, a.SendCQ.Close())
		_, err = a.SendCQ.Poll(make([]verbs.WC, 1))
		assert.ErrorIs(e.t, err, verbs.ErrClosed)
		assert.ErrorIs(e.t, a.SendCQ.ReqNotify(false), verbs.ErrClosed)

		require.NoError(e.t, a.MR.Close())
		require.NoError(e.t, a.PD.Close())
		_, err = a.PD.RegMR(a.Mem, 0)
		assert.ErrorIs(e.t, err, verbs.ErrClosed)
		_, err = a.PD.CreateQP(&verbs.QPInitAttr{
			Type: verbs.QPTypeRC, SendCQ: a.RecvCQ, RecvCQ: a.RecvCQ,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		assert.ErrorIs(e.t, err, verbs.ErrClosed)
	})

	t.Run("ClosedContext", func(t *testing.T) {
		ctx := s.cfg.Open(t)
		require.NoError(t, ctx.Close())
		assert.ErrorIs(t, ctx.Close(), verbs.ErrClosed)
		_, err := ctx.AllocPD()
		assert.ErrorIs(t, err, verbs.ErrClosed)
		_, err = ctx.CreateCQ(1, nil)
		assert.ErrorIs(t, err, verbs.ErrClosed)
		_, err = ctx.CreateCompChannel()
		assert.ErrorIs(t, err, verbs.ErrClosed)
	})

	s.run(t, "QPWithWork", func(e *env) {
		// A QP with everything on its queues goes at once, and its peer can go after it.
		p := e.pair(PairConfig{})
		for i := range 32 {
			if !e.cfg.has(DeviatesNoRNR) {
				p.A.Post(sendWR(uint64(i), p.A.SGL(0, 8))) // nobody receives
			}
			p.A.Recv(uint64(i), 0, 8)
			p.B.Post(writeWR(uint64(i), p.B.SGL(0, 8), p.A, 0))
		}
		require.NoError(e.t, p.A.QP.Close())
		require.NoError(e.t, p.B.QP.Close())
	})

	s.run(t, "MRUnderTraffic", func(e *env) {
		// An MR is deregistered while the peer writes into it: what comes after
		// fails, and nothing is written any more once Close has returned.
		for round := range 5 {
			p := e.pair(PairConfig{})
			mr := e.part(p.B, 4096, everything)
			started, errs := make(chan struct{}), make(chan error, 1)
			var stop atomic.Bool // for a device on which nothing completes in the end
			go func() {
				fill(p.A.Mem[:4096], round)
				for i := 0; ; i++ {
					if _, err := p.A.QP.PostSend([]verbs.SendWR{at(writeWR(uint64(i), p.A.SGL(0, 4096), p.B, 0), mr, 0)}); err != nil {
						errs <- err
						return
					}
					var wc [1]verbs.WC
					deadline := time.Now().Add(e.cfg.Timeout)
					for turn := 0; ; turn++ {
						n, err := p.A.SendCQ.Poll(wc[:])
						if n > 0 {
							break
						}
						if err == nil && (stop.Load() || time.Now().After(deadline)) {
							err = errors.New("nothing completes")
						}
						if err != nil {
							errs <- err
							return
						}
						pause(turn)
					}
					if i == 10 {
						close(started)
					}
					if wc[0].Status != verbs.WCSuccess {
						errs <- wc[0].Status
						return
					}
				}
			}()
			receive(e, started)
			require.NoError(e.t, mr.Close())
			late := e.cfg.has(DeviatesLateWrites)
			if !late {
				clear(p.B.Mem[4096:8192])
			}
			if e.cfg.has(DeviatesErrPosts) {
				e.inState(p.A.QP, verbs.QPErr)
				stop.Store(true)
				<-errs
			} else {
				require.ErrorIs(e.t, receive(e, errs), verbs.WCRemAccessErr)
			}
			if late { // the connection has ended behind what was still being placed
				clear(p.B.Mem[4096:8192])
			}
			sameBytes(e.t, make([]byte, 4096), p.B.Mem[4096:8192])
		}
	})
}
