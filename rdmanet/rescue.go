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
func (s *stream) rescue() {
	s.rescueSleeper(dirRead, s.recv.tryUnlocked)
	s.rescueSleeper(dirWrite, s.send.try)
}

// rescueSleeper is told how to poll and see whether there is something to do.
func (s *stream) rescueSleeper(d direction, try func() bool) {
	w := s.waiter(d)
	since := w.overdue.Load()
	if !w.parked.Load() || s.term.ended(d) || !try() {
		return // a park begins with overdue at 0
	}
	now := int64(time.Since(epoch))
	if since == 0 {
		w.overdue.CompareAndSwap(0, now)
		return
	}
	if now-since < int64(lostAfter) {
		return
	}
	s.rescued.Add(1)
	s.ep.log(slog.LevelWarn, "rdmanet: the device has lost a notification", "waiting", [...]string{opRead, opWrite}[d])
	s.endWait(d) // wait puts the deadline back
}

// tryUnlocked is try for who does not hold the read lock.
func (r *receiveHalf) tryUnlocked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress()
	return r.readable()
}
