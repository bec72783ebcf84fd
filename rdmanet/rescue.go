package rdmanet

import (
	"log/slog"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/runtimer"
)

// lostAfter is how long there must have been something to do for a sleeper, while this
// process ran, before its notification is taken for lost: much longer than a busy process
// takes to wake up. Time in which the process or its machine stood still does not count, for
// the notification is there then, and only has to be read.
const lostAfter = 2 * time.Second

// rescue wakes who sleeps although there has been something to do for lostAfter, and
// counts it. Arming and polling again see to it that nobody does; a device that loses a
// notification would otherwise leave a Read waiting for ever. It is called by the ticks
// of the keepalive: a timer of its own would cost each idle connection.
func (s *stream) rescue() {
	s.suspect(dirRead)
	s.suspect(dirWrite)
}

// suspect looks at the sleeper of a direction, and once more after lostAfter if it has
// something to do.
func (s *stream) suspect(d direction) {
	w := s.waiter(d)
	park, known := w.parks.Load(), w.overdue.Load()
	if known != park && s.oversleeps(d, park) && w.overdue.CompareAndSwap(known, park) {
		runtimer.After(lostAfter, func() { s.rescueSleeper(d, park) })
	}
}

// rescueSleeper wakes the sleeper of a park if it still has something to do.
func (s *stream) rescueSleeper(d direction, park uint64) {
	if !s.owner.enter() {
		return
	}
	defer s.owner.leave()
	s.waiter(d).overdue.CompareAndSwap(park, 0)
	if !s.oversleeps(d, park) {
		return
	}
	s.rescued.Add(1)
	s.ep.log(slog.LevelWarn, "rdmanet: the device has lost a notification", "waiting", [...]string{opRead, opWrite}[d])
	s.endWait(d) // wait puts the deadline back
}

// oversleeps polls, and reports whether a park lasts although there is something to do.
func (s *stream) oversleeps(d direction, park uint64) bool {
	w := s.waiter(d)
	if !w.parked.Load() || s.term.ended(d) {
		return false
	}
	try := s.send.try
	if d == dirRead {
		try = s.recv.tryUnlocked
	}
	return try() && w.parked.Load() && w.parks.Load() == park
}

// tryUnlocked is try for who does not hold the read lock.
func (r *receiveHalf) tryUnlocked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress()
	return r.readable()
}
