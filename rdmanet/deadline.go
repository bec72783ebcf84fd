package rdmanet

import (
	"math"
	"net"
	"time"
)

// epoch is the zero of the monotonic times kept in atomics.
var epoch = time.Now()

// longPast is a deadline that has passed; setting it wakes who waits.
var longPast = time.Unix(1, 0)

// SetDeadline sets the read and the write deadline, as net.Conn describes. It allocates nothing.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, dirRead, dirWrite)
}

// SetReadDeadline sets when Reads that wait, now or later, give up with os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadlines(t, dirRead, dirRead)
}

// SetWriteDeadline sets when Writes that wait, now or later, give up with os.ErrDeadlineExceeded.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadlines(t, dirWrite, dirWrite)
}

func (c *Conn) setDeadlines(t time.Time, from, to direction) error {
	if !c.life.incref() {
		return c.setClosed()
	}
	c.via.setDeadlines(t, from, to)
	c.exit(c.life.decref())
	return nil
}

func (s *stream) setDeadlines(t time.Time, from, to direction) {
	at := sinceEpoch(t)
	// Both at once: of two concurrent calls one is the last for both directions.
	for d := from; d <= to; d++ {
		s.waiter(d).mu.Lock()
	}
	for d := from; d <= to; d++ {
		s.setDeadline(d, t, at)
		s.waiter(d).mu.Unlock()
	}
}

// setClosed is the error of a setting on a closed Conn, which in package net names
// the local end only.
func (c *Conn) setClosed() error {
	return opError(opSet, c.network.String(), nil, c.laddr, net.ErrClosed)
}

// sinceEpoch is t on the scale of deadlines: 0 for none, at most what fits for one
// that is centuries away.
func sinceEpoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	now, left := int64(time.Since(epoch)), int64(time.Until(t))
	if left > math.MaxInt64-now {
		return math.MaxInt64
	}
	return max(now+left, 1)
}

// setDeadline sets the deadline of a direction: t, which is at on the scale of deadlines.
// Called with the waiter's mu held.
func (s *stream) setDeadline(d direction, t time.Time, at int64) {
	w := s.waiter(d)
	w.deadline.Store(at)
	// Where the direction has ended the channel keeps the deadline that endWait
	// set: moving it could put a waiter back to sleep before it looked.
	if !s.term.ended(d) {
		s.ep.setDeadline(d, t)
	}
}

// expired reports whether the deadline has passed.
func (w *waiter) expired() bool {
	at := w.deadline.Load()
	return at != 0 && int64(time.Since(epoch)) >= at
}

// endWait ends the waits in a direction that has ended, for good.
func (s *stream) endWait(d direction) {
	w := s.waiter(d)
	w.mu.Lock()
	s.ep.setDeadline(d, longPast)
	w.mu.Unlock()
}

// wokenEarly puts back the deadline of a waiter that it ended before its time, unless
// the direction has ended.
func (s *stream) wokenEarly(d direction) {
	w := s.waiter(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.term.ended(d) {
		return
	}
	var t time.Time
	if at := w.deadline.Load(); at != 0 {
		t = epoch.Add(time.Duration(at))
	}
	s.ep.setDeadline(d, t)
}
