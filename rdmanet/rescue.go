package rdmanet

import (
	"log/slog"
	"time"
)

// lostAfter is how long there must have been something to do for a sleeper before its
// notification is taken for lost: much longer than a busy process takes to wake up.
const lostAfter = 2 * time.Second

// rescue wakes who sleeps although there has been something to do for lostAfter, and
// counts it. Arming and polling again see to it that nobody does; a device that loses a
// notification would otherwise leave a Read waiting for ever. It is called by the ticks
// of the keepalive: a timer of its own would cost each idle connection.
func (c *Conn) rescue() {
	for d := range c.waiter {
		w, d := &c.waiter[d], direction(d)
		since := w.overdue.Load()
		if !w.parked.Load() || c.term.ended(d) || !c.somethingFor(d) {
			continue // a park begins with overdue at 0
		}
		now := int64(time.Since(epoch))
		if since == 0 {
			w.overdue.CompareAndSwap(0, now)
			continue
		}
		if now-since < int64(lostAfter) {
			continue
		}
		c.rescued.Add(1)
		c.ep.log(slog.LevelWarn, "rdmanet: the device has lost a notification", "waiting", [...]string{opRead, opWrite}[d])
		c.wake(d) // wait puts the deadline back
	}
}

// somethingFor polls and says whether whoever waits in the direction has something to do.
func (c *Conn) somethingFor(d direction) bool {
	if d == dirWrite {
		return c.tryWrite()
	}
	c.rx.Lock()
	defer c.rx.Unlock()
	c.progress()
	return c.recv.Buffered() > 0 || c.term.received()
}

// wokenEarly puts back the deadline of a waiter that it ended before its time, unless
// the direction has ended.
func (c *Conn) wokenEarly(d direction) {
	c.dl.Lock()
	defer c.dl.Unlock()
	if c.term.ended(d) {
		return
	}
	var t time.Time
	if at := c.deadline[d].Load(); at != 0 {
		t = epoch.Add(time.Duration(at))
	}
	c.ep.setDeadline(d, t)
}
