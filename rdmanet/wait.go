package rdmanet

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// A waiter is the waiting of one direction: poll for a while if that has paid
// lately, then arm the CQ, poll once more, and park in the network poller.
type waiter struct {
	try    func() bool // poll once; true if the wait is over
	arm    func() bool // arm, then try
	budget spinBudget
	parked atomic.Bool
	spins  atomic.Uint64
	parks  atomic.Uint64
	// overdue is since when rescue knows of something to do for the parked, as the time
	// since epoch; 0 if it does not.
	overdue atomic.Int64
}

// wait returns nil when try has said true, or the direction ended, or for no
// reason; the caller looks again. Otherwise it returns net.ErrClosed or
// os.ErrDeadlineExceeded.
func (c *Conn) wait(d direction) error {
	w := &c.waiter[d]
	if c.term.closed() {
		return net.ErrClosed
	}
	if d == dirRead && !c.ep.synchronous {
		// The answer that is waited for may be one to what was gathered.
		c.tx.Lock()
		c.sendGathered()
		c.tx.Unlock()
	}
	if w.spin(c, d) {
		w.spins.Add(1)
		// A busy peer ends every spin at once.
		if c.busy.Load() && c.expired(d) {
			return os.ErrDeadlineExceeded
		}
		return nil
	}
	if c.term.closed() {
		return net.ErrClosed
	}
	if c.expired(d) {
		return os.ErrDeadlineExceeded
	}
	w.parks.Add(1)
	lookAtProcs()
	w.overdue.Store(0)
	w.parked.Store(true)
	began := time.Now()
	err := c.ep.wait(d, w.arm)
	w.parked.Store(false)
	w.budget.parked(time.Since(began))
	switch {
	case err == nil, c.term.failed():
		return nil
	case c.term.closed(), errors.Is(err, os.ErrClosed), errors.Is(err, net.ErrClosed):
		return net.ErrClosed
	case c.term.ended(d):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		if c.expired(d) {
			return os.ErrDeadlineExceeded
		}
		c.wokenEarly(d) // or it was moved meanwhile
		return nil
	case errors.Is(err, ErrNoDevice): // the channel may know before the connection manager
		c.fail(syscall.ENODEV, err)
		return nil
	}
	return err
}
