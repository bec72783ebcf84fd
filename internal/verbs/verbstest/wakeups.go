package verbstest

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// testWakeups looks for lost wake-ups: a consumer that arms, looks again and
// sleeps is always woken, whatever its producers do meanwhile. A lost wake-up
// shows as a deadline that passes.
func testWakeups(t *testing.T, s *suite) {
	for _, d := range directions {
		s.run(t, "PingPong-"+d.name, func(e *env) {
			// Both sides sleep between any two messages.
			rounds := e.rounds(2000)
			ca, cb := e.channel(), e.channel()
			p := e.pair(PairConfig{A: EndConfig{Channel: ca}, B: EndConfig{Channel: cb}})
			limit := time.Now().Add(4 * e.cfg.Timeout)
			require.NoError(e.t, d.deadline(ca, limit))
			require.NoError(e.t, d.deadline(cb, limit))
			p.A.PostRecv(verbs.RecvWR{})
			p.B.PostRecv(verbs.RecvWR{})
			errs := make(chan error, 2)
			go func() { errs <- rally(e, d, ca, p.A, rounds, true) }()
			go func() { errs <- rally(e, d, cb, p.B, rounds, false) }()
			finish(e.t, errs, 2, 5*e.cfg.Timeout)
			for _, end := range []*End{p.A, p.B} {
				if c, ok := end.QP.(driver.QPStatter); ok {
					require.NotZero(e.t, c.WakeupsSent(), "nobody has slept")
					require.Equal(e.t, c.QPStats().WakeupsSent, c.WakeupsSent())
				}
			}
		})

		s.run(t, "Producers-"+d.name, func(e *env) {
			// Many producers into one CQ, each with pauses of its own.
			const producers = 4
			each := e.rounds(1500)
			ch := e.channel()
			cq := e.cq(producers*64*2, ch)
			pd := e.pd()
			require.NoError(e.t, d.deadline(ch, time.Now().Add(4*e.cfg.Timeout)))
			errs := make(chan error, producers)
			ends := map[uint32]*End{}
			ready := map[uint32]*atomic.Int64{}
			for g := range producers {
				p := e.pair(PairConfig{B: EndConfig{PD: pd, RecvCQ: cq}})
				ends[p.B.QP.QPN()] = p.B
				again := new(atomic.Int64)
				ready[p.B.QP.QPN()] = again
				for range 32 {
					p.B.PostRecv(verbs.RecvWR{})
				}
				go func() { errs <- produce(e, p.A, each, g, again) }()
			}
			got := 0
			var failed error
			var wc [8]verbs.WC
			look := func() int {
				n, err := cq.Poll(wc[:])
				if err != nil {
					failed = err
				}
				return n
			}
			for got < producers*each && failed == nil {
				n := 0
				err := d.wait(ch, func() bool {
					if n = look(); n > 0 || failed != nil {
						return true
					}
					if failed = cq.ReqNotify(false); failed != nil {
						return true
					}
					n = look()
					return n > 0 || failed != nil
				})
				require.NoError(e.t, err, "after %d of %d messages", got, producers*each)
				require.NoError(e.t, failed)
				for _, w := range wc[:n] {
					require.Equal(e.t, verbs.WCSuccess, w.Status)
					ends[w.QPN].PostRecv(verbs.RecvWR{})
					ready[w.QPN].Add(1)
				}
				got += n
			}
			finish(e.t, errs, producers, e.cfg.Timeout)
		})
	}

	for _, d := range directions {
		s.run(t, "LateSends-"+d.name, func(e *env) {
			// Sends that complete late, since the receiver is late: what wakes
			// here is a completion of this side.
			e.waitingSends()
			messages := e.rounds(300)
			ch := e.channel()
			p := e.pair(PairConfig{A: EndConfig{Channel: ch}})
			require.NoError(e.t, d.deadline(ch, time.Now().Add(4*e.cfg.Timeout)))
			errs := make(chan error, 2)
			posted := make(chan struct{}, 1)
			go func() {
				for i := range messages {
					if _, err := p.A.QP.PostSend([]verbs.SendWR{sendWR(uint64(i), nil)}); err != nil {
						errs <- err
						return
					}
					posted <- struct{}{}
					if err := d.waitForOp(ch, p.A.SendCQ, uint64(i), verbs.WCSend); err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
			go func() {
				for i := range messages {
					<-posted
					for range i % 7 {
						runtime.Gosched()
					}
					if _, err := p.B.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(i)}}); err != nil {
						errs <- err
						return
					}
					if err := expect(e, p.B.RecvCQ, uint64(i), verbs.WCRecv); err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
			finish(e.t, errs, 2, 5*e.cfg.Timeout)
		})
	}

	s.run(t, "BothDirections", func(e *env) {
		// One channel, a reader that sleeps for receives and a writer that sleeps
		// for send completions, as a connection has them. Every event wakes both.
		messages := e.rounds(1500)
		ch := e.channel()
		p := e.pair(PairConfig{A: EndConfig{Channel: ch}})
		limit := time.Now().Add(4 * e.cfg.Timeout)
		require.NoError(e.t, ch.SetReadDeadline(limit))
		require.NoError(e.t, ch.SetWriteDeadline(limit))
		errs := make(chan error, 4)
		for i := range 32 {
			p.A.PostRecv(verbs.RecvWR{WRID: uint64(i)})
			p.B.PostRecv(verbs.RecvWR{WRID: uint64(i)})
		}
		var readyA, readyB atomic.Int64 // receives that have been posted again
		go func() { errs <- produce(e, p.B, messages, 5, &readyA) }()
		go func() { // the reader of A
			for i := range messages {
				if err := directions[0].waitFor(ch, p.A.RecvCQ, uint64(i)); err != nil {
					errs <- fmt.Errorf("reader: %w", err)
					return
				}
				if _, err := p.A.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(i + 32)}}); err != nil {
					errs <- err
					return
				}
				readyA.Add(1)
			}
			errs <- nil
		}()
		go func() { // the writer of A
			for i := range messages {
				if err := e.ahead(i, 32, &readyB); err != nil {
					errs <- err
					return
				}
				if _, err := p.A.QP.PostSend([]verbs.SendWR{sendWR(uint64(i), nil)}); err != nil {
					errs <- err
					return
				}
				if err := directions[1].waitForOp(ch, p.A.SendCQ, uint64(i), verbs.WCSend); err != nil {
					errs <- fmt.Errorf("writer: %w", err)
					return
				}
			}
			errs <- nil
		}()
		go func() { // B takes what comes
			for i := range messages {
				if err := expect(e, p.B.RecvCQ, uint64(i), verbs.WCRecv); err != nil {
					errs <- err
					return
				}
				if _, err := p.B.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(i + 32)}}); err != nil {
					errs <- err
					return
				}
				readyB.Add(1)
			}
			errs <- nil
		}()
		finish(e.t, errs, 4, 5*e.cfg.Timeout)
	})

	s.run(t, "ErrWakes", func(e *env) {
		// A sleeper learns that its QP went to ERR from the flush.
		for _, d := range directions {
			ch := e.channel()
			p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
			p.B.PostRecv(verbs.RecvWR{WRID: 1})
			errs := make(chan error, 1)
			require.NoError(e.t, d.deadline(ch, time.Now().Add(e.cfg.Timeout)))
			go func() { errs <- d.waitFor(ch, p.B.RecvCQ, 1) }()
			require.NoError(e.t, p.B.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
			require.ErrorIs(e.t, receive(e, errs), verbs.WCWRFlushErr)
		}
	})
}

// rally plays one side of a game of single messages. The first receive is posted, and the
// next one is before anything is sent that the peer answers.
func rally(e *env, d direction, ch verbs.CompChannel, x *End, rounds int, serves bool) error {
	receiveOne := func(i int) error { return d.waitFor(ch, x.RecvCQ, uint64(i)) }
	sendOne := func(i int) error {
		if _, err := x.QP.PostSend([]verbs.SendWR{sendWR(uint64(i), nil)}); err != nil {
			return err
		}
		return expect(e, x.SendCQ, uint64(i), verbs.WCSend)
	}
	for i := range rounds {
		if _, err := x.QP.PostRecv([]verbs.RecvWR{{WRID: uint64(i + 1)}}); err != nil {
			return err
		}
		steps := []func(int) error{receiveOne, sendOne}
		if serves {
			steps[0], steps[1] = steps[1], steps[0]
		}
		for _, step := range steps {
			if err := step(i); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
	}
	return nil
}

// produce sends n messages with irregular pauses, one at a time, to a peer that has 32
// receives, and ready says how many were posted again.
func produce(e *env, x *End, n, seed int, ready *atomic.Int64) error {
	r := uint32(seed + 1)
	for i := range n {
		if err := e.ahead(i, 32, ready); err != nil {
			return err
		}
		if _, err := x.QP.PostSend([]verbs.SendWR{sendWR(uint64(i), nil)}); err != nil {
			return err
		}
		if err := expect(e, x.SendCQ, uint64(i), verbs.WCSend); err != nil {
			return fmt.Errorf("producer %d: %w", seed, err)
		}
		r = r*1664525 + 1013904223
		for range r >> 24 & 15 {
			runtime.Gosched()
		}
	}
	return nil
}
