package rdmanet

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A condition is what somebody waits for: bytes to read, room to write, the peer's first
// word, that nothing is left to send.
type condition interface {
	// try polls once and reports whether that holds.
	try() bool
	// beforeSleep sends what is owed, where there is room, and reports whether completions of
	// requests may end the wait or make room. Those of receives may in any case.
	beforeSleep() (needsSends bool)
}

// arm polls, has the channel woken by what may end the wait for c, and polls again. It reports
// whether the wait is over, or may be: the caller looks again. If it is not, nothing has been
// missed, and the channel may sleep. Whoever sleeps does so here.
func (s *stream) arm(c condition) bool {
	if s.poll(c) {
		return true
	}
	if err := s.ep.recvCQ.ReqNotify(false); err != nil {
		s.fail(syscall.ECONNABORTED, err)
		return true
	}
	if c.beforeSleep() {
		if err := s.ep.sendCQ.ReqNotify(false); err != nil {
			s.fail(syscall.ECONNABORTED, err)
			return true
		}
		c.beforeSleep() // the room may have come before the CQ was armed
	}
	return s.poll(c)
}

// poll polls once and reports whether the wait for c may be over.
func (s *stream) poll(c condition) bool { return c.try() || s.recv.busy.Load() }

// sleep waits in a direction of the channel until arm says that the wait for c may be over,
// or the deadline of the direction has passed.
func (s *stream) sleep(d direction, c condition) error {
	return s.ep.wait(d, func() bool { return s.arm(c) })
}

// A waiter is the waiting of Reads or of Writes, and their deadline: poll for a while if
// that has paid lately, then sleep.
type waiter struct {
	arm func() bool // stream.arm for the half; made once, as sleeping allocates nothing

	mu       sync.Mutex   // guards the channel's deadline against the end of the direction; the innermost lock
	deadline atomic.Int64 // on the scale of epoch, 0 for none; set under mu

	budget  spinBudget // whoever waits has it: the holder of the lock of the direction
	parked  atomic.Bool
	spins   atomic.Uint64
	parks   atomic.Uint64
	overdue atomic.Uint64 // the park for which rescue knows of something to do, or 0
}

// wait returns nil when c holds, or the direction ended, or for no reason; the caller looks
// again. Otherwise it returns net.ErrClosed or os.ErrDeadlineExceeded.
func (w *waiter) wait(s *stream, d direction, c condition) error {
	if s.term.closed() {
		return net.ErrClosed
	}
	if w.spin(s, c) {
		w.spins.Add(1)
		// A busy peer ends every spin at once.
		if s.recv.busy.Load() && w.expired() {
			return os.ErrDeadlineExceeded
		}
		return nil
	}
	if s.term.closed() {
		return net.ErrClosed
	}
	if w.expired() {
		return os.ErrDeadlineExceeded
	}
	w.parks.Add(1)
	lookAtProcs()
	w.parked.Store(true)
	began := time.Now()
	err := s.ep.wait(d, w.arm)
	w.parked.Store(false)
	w.budget.parked(time.Since(began))
	switch {
	case err == nil, s.term.failed():
		return nil
	case s.term.closed(), errors.Is(err, os.ErrClosed), errors.Is(err, net.ErrClosed):
		return net.ErrClosed
	case s.term.ended(d):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		if w.expired() {
			return os.ErrDeadlineExceeded
		}
		s.wokenEarly(d) // or it was moved meanwhile
		return nil
	case errors.Is(err, ErrNoDevice): // the channel may know before the connection manager
		s.fail(syscall.ENODEV, err)
		return nil
	}
	return err
}
