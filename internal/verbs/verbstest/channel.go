package verbstest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// direction is one of the two ways to wait on a channel.
type direction struct {
	name     string
	wait     func(verbs.CompChannel, func() bool) error
	deadline func(verbs.CompChannel, time.Time) error
}

var directions = []direction{
	{"WaitRead", verbs.CompChannel.WaitRead, verbs.CompChannel.SetReadDeadline},
	{"WaitWrite", verbs.CompChannel.WaitWrite, verbs.CompChannel.SetWriteDeadline},
}

func isClosed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed)
}

// park starts a wait that never finds what it wants, and returns once it has
// looked for it, or is over.
func (d direction) park(e *env, ch verbs.CompChannel) <-chan error {
	e.t.Helper()
	errs := make(chan error, 1)
	looked := make(chan struct{}, 1)
	look := func() bool {
		select {
		case looked <- struct{}{}:
		default:
		}
		return false
	}
	go func() {
		err := d.wait(ch, look)
		look() // it may not have come to it
		errs <- err
	}()
	receive(e, looked)
	return errs
}

func testChannel(t *testing.T, s *suite) {
	for i, d := range directions {
		other := directions[1-i]

		s.run(t, d.name+"/Found", func(e *env) {
			// What try finds at once needs no event.
			ch := e.channel()
			calls := 0
			require.NoError(e.t, d.wait(ch, func() bool { calls++; return true }))
			require.Equal(e.t, 1, calls)
		})

		s.run(t, d.name+"/Event", func(e *env) {
			ch := e.channel()
			p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
			require.NoError(e.t, d.deadline(ch, time.Now().Add(e.cfg.Timeout)))
			for i := range 50 {
				p.B.PostRecv(verbs.RecvWR{WRID: uint64(i)})
				errs := make(chan error, 1)
				go func() { errs <- d.waitFor(ch, p.B.RecvCQ, uint64(i)) }()
				p.A.Post(sendWR(1, nil))
				require.NoError(e.t, receive(e, errs))
				p.A.SentOK(1, verbs.WCSend)
			}
		})

		s.run(t, d.name+"/PastDeadline", func(e *env) {
			ch := e.channel()
			require.NoError(e.t, d.deadline(ch, time.Unix(1, 0)))
			for range 3 {
				err := d.wait(ch, func() bool { return false })
				require.ErrorIs(e.t, err, os.ErrDeadlineExceeded)
			}
			var timeout interface{ Timeout() bool }
			err := d.wait(ch, func() bool { return false })
			require.True(e.t, errors.As(err, &timeout) && timeout.Timeout())
		})

		s.run(t, d.name+"/FutureDeadline", func(e *env) {
			ch := e.channel()
			begin := time.Now()
			require.NoError(e.t, d.deadline(ch, begin.Add(20*time.Millisecond)))
			require.ErrorIs(e.t, receive(e, d.park(e, ch)), os.ErrDeadlineExceeded)
			require.GreaterOrEqual(e.t, time.Since(begin), 20*time.Millisecond, "too early")
		})

		s.run(t, d.name+"/DeadlineSetDuringWait", func(e *env) {
			ch := e.channel()
			for range 20 {
				require.NoError(e.t, d.deadline(ch, time.Time{}))
				errs := d.park(e, ch)
				require.NoError(e.t, d.deadline(ch, time.Unix(1, 0)))
				require.ErrorIs(e.t, receive(e, errs), os.ErrDeadlineExceeded)
			}
		})

		s.run(t, d.name+"/DeadlineMovedDuringWait", func(e *env) {
			ch := e.channel()
			require.NoError(e.t, d.deadline(ch, time.Now().Add(time.Hour)))
			errs := d.park(e, ch)
			begin := time.Now()
			require.NoError(e.t, d.deadline(ch, begin.Add(10*time.Millisecond)))
			require.ErrorIs(e.t, receive(e, errs), os.ErrDeadlineExceeded)
			require.GreaterOrEqual(e.t, time.Since(begin), 10*time.Millisecond)
		})

		s.run(t, d.name+"/DeadlineTakenBack", func(e *env) {
			// A deadline that is lifted before it passes does not fire, and one
			// that passed does not spoil later waits.
			ch := e.channel()
			p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
			errs := make(chan error, 1)
			for left := e.cfg.Quiet; ; left *= 2 {
				limit := time.Now().Add(left)
				require.NoError(e.t, d.deadline(ch, limit))
				waiting := d.park(e, ch)
				require.NoError(e.t, d.deadline(ch, time.Time{}))
				if !time.Now().Before(limit) { // it may have passed: once more, with more time
					require.NoError(e.t, d.deadline(ch, time.Unix(1, 0)))
					require.ErrorIs(e.t, receive(e, waiting), os.ErrDeadlineExceeded)
					continue
				}
				time.Sleep(time.Until(limit) + e.cfg.Quiet)
				require.Empty(e.t, waiting, "the deadline that was taken back has passed")
				require.NoError(e.t, d.deadline(ch, time.Unix(1, 0)))
				require.ErrorIs(e.t, receive(e, waiting), os.ErrDeadlineExceeded)
				break
			}

			require.NoError(e.t, d.deadline(ch, time.Unix(1, 0)))
			require.ErrorIs(e.t, d.wait(ch, func() bool { return false }), os.ErrDeadlineExceeded)
			require.NoError(e.t, d.deadline(ch, time.Time{}))
			p.B.PostRecv(verbs.RecvWR{WRID: 2})
			go func() { errs <- d.waitFor(ch, p.B.RecvCQ, 2) }()
			p.A.Post(sendWR(1, nil))
			require.NoError(e.t, receive(e, errs))
		})

		s.run(t, d.name+"/DeadlineOfItsOwn", func(e *env) {
			// The deadline of one direction is none of the other's business.
			ch := e.channel()
			p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
			require.NoError(e.t, other.deadline(ch, time.Unix(1, 0)))
			p.B.PostRecv(verbs.RecvWR{WRID: 1})
			errs := make(chan error, 1)
			go func() { errs <- d.waitFor(ch, p.B.RecvCQ, 1) }()
			require.ErrorIs(e.t, other.wait(ch, func() bool { return false }), os.ErrDeadlineExceeded)
			p.A.Post(sendWR(1, nil))
			require.NoError(e.t, receive(e, errs))
		})

		s.run(t, d.name+"/Close", func(e *env) {
			for range 20 {
				ch := e.channel()
				errs := d.park(e, ch)
				require.NoError(e.t, ch.Close())
				err := receive(e, errs)
				require.True(e.t, isClosed(err), "error %v", err)
				err = d.wait(ch, func() bool { return false })
				require.True(e.t, isClosed(err), "error %v after Close", err)
			}
		})
	}

	s.run(t, "CloseWakesBoth", func(e *env) {
		ch := e.channel()
		r, w := directions[0].park(e, ch), directions[1].park(e, ch)
		require.NoError(e.t, ch.Close())
		assert.True(e.t, isClosed(receive(e, r)))
		assert.True(e.t, isClosed(receive(e, w)))
	})

	s.run(t, "CloseWakesGetEvent", func(e *env) {
		ch := e.channel()
		errs := make(chan error, 1)
		go func() {
			_, err := ch.GetEvent()
			errs <- err
		}()
		require.NoError(e.t, ch.Close())
		err := receive(e, errs)
		require.True(e.t, isClosed(err), "error %v", err)
	})

	s.run(t, "GetEventDeadline", func(e *env) {
		ch := e.channel()
		require.NoError(e.t, ch.SetReadDeadline(time.Unix(1, 0)))
		_, err := ch.GetEvent()
		require.ErrorIs(e.t, err, os.ErrDeadlineExceeded)
		require.NoError(e.t, ch.SetReadDeadline(time.Time{}))
		errs := make(chan error, 1)
		go func() {
			_, err := ch.GetEvent()
			errs <- err
		}()
		require.NoError(e.t, ch.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		require.ErrorIs(e.t, receive(e, errs), os.ErrDeadlineExceeded)
	})

	s.run(t, "EventWakesBoth", func(e *env) {
		// One event, two waiters: each looks again.
		ch := e.channel()
		p := e.pair(PairConfig{B: EndConfig{Channel: ch}})
		r, w := make(chan struct{}, 1), make(chan struct{}, 1)
		errs := make(chan error, 2)
		for i, looks := range []chan struct{}{r, w} {
			d := directions[i]
			calls := 0
			go func() {
				errs <- d.wait(ch, func() bool {
					calls++
					if calls == 1 {
						looks <- struct{}{}
					}
					return calls > 1
				})
			}()
			receive(e, looks)
		}
		// Both have looked once. Whether they sleep already or not, an event
		// makes them look again.
		p.B.PostRecv(verbs.RecvWR{WRID: 1})
		require.NoError(e.t, p.B.RecvCQ.ReqNotify(false))
		p.A.Post(sendWR(2, nil))
		finish(e.t, errs, 2, e.cfg.Timeout)
		p.B.ReceivedOK(1, verbs.WCRecv)
		p.A.SentOK(2, verbs.WCSend)
	})
}

// waitFor waits for the completion of one receive.
func (d direction) waitFor(ch verbs.CompChannel, cq verbs.CQ, id uint64) error {
	return d.waitForOp(ch, cq, id, verbs.WCRecv)
}

// waitForOp waits for one completion in the way that CompChannel prescribes:
// look, arm, look again, sleep.
func (d direction) waitForOp(ch verbs.CompChannel, cq verbs.CQ, id uint64, op verbs.WCOpcode) error {
	var wc [1]verbs.WC
	var failed error
	look := func() bool {
		n, err := cq.Poll(wc[:])
		failed = err
		return n > 0 || err != nil
	}
	err := d.wait(ch, func() bool {
		if look() {
			return true
		}
		if failed = cq.ReqNotify(false); failed != nil {
			return true
		}
		return look()
	})
	if err != nil {
		return fmt.Errorf("waiting for %v %d: %w", op, id, err)
	}
	if failed != nil {
		return failed
	}
	return check(wc[0], id, op)
}
