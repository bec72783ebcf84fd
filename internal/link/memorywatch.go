package link

import (
	"time"
)

// memoryWatch looks at the memory of a lane now and then, while there is a reason to: some rings are larger than
// the first or offered, the send memory is, Buffers are being sent, empty chunks are kept, or there was no memory, or
// no port, for something. Otherwise it has no timer. The lane's lock guards it.
type memoryWatch struct {
	timer   *time.Timer
	ticking bool
	large   []*stream // with a ring larger than the first, or offered
	refused bool      // there was no memory since the last look: nothing grows until the next
	noPorts bool      // there was no port for a place
}

// looks is how many looks in a row have to find a ring unused before it shrinks.
const looks = 5

// ringAge tells for how many looks a ring was not used.
type ringAge struct {
	received uint64 // at the last look
	unused   int
}

// look returns it: the ring is empty, and less has arrived since the last look than a ring of
// little bytes takes in its stride.
func (a *ringAge) look(received, buffered uint64, little uint32) int {
	if buffered == 0 && received-a.received <= uint64(little/2) {
		a.unused++
	} else {
		a.unused = 0
	}
	a.received = received
	return a.unused
}

// watch begins to look at a stream whose ring is large, or to which one was offered. mu is held.
func (e *laneEnd) watch(s *stream) {
	if !s.in.listed && !s.end.closed {
		s.in.listed = true
		s.in.age = ringAge{received: s.st.Receiver().ReceivedBytes()}
		e.memory.large = append(e.memory.large, s)
		e.watchMemory()
	}
}

// memoryRefused has what there was no memory for asked for again. mu is held.
func (e *laneEnd) memoryRefused() {
	e.memory.refused = true
	e.counts.refusals++
	e.watchMemory()
}

func (e *laneEnd) watchMemory() {
	m := &e.memory
	if m.ticking || e.err != nil {
		return
	}
	m.ticking = true
	if m.timer == nil {
		m.timer = time.AfterFunc(e.cfg.Shrink/looks, e.lookAtMemory)
	} else {
		m.timer.Reset(e.cfg.Shrink / looks)
	}
}

// stop ends it. mu is held.
func (m *memoryWatch) stop() {
	if m.ticking {
		m.timer.Stop()
	}
	m.large = nil
}

// lookAtMemory is one look.
func (e *laneEnd) lookAtMemory() {
	e.mu.Lock()
	m := &e.memory
	if m.ticking = false; e.err != nil {
		e.mu.Unlock()
		return
	}
	refused := m.refused
	if (refused || m.noPorts) && !e.away {
		e.listener.note(noteRetry, 0)
	}
	m.refused, m.noPorts = false, false
	if refused {
		for _, s := range e.streams {
			if s != nil && (s.in.wants || s.st.Receiver().WantsRing()) {
				e.growDue(s)
			}
		}
		if len(e.staging.turns.waiting) > 0 {
			e.stagingDue()
		}
	}
	enough := looks
	if e.cfg.Budget.Short() {
		enough = 1
	}
	still := m.large[:0]
	for _, s := range m.large {
		if s.in.listed = e.lookAtRing(s, enough); s.in.listed {
			still = append(still, s)
		}
	}
	clear(m.large[len(still):])
	m.large = still
	e.reapAtRest()
	if again := e.lookAtStaging(enough); again || len(still)+len(e.buffers.sending) > 0 {
		e.watchMemory()
	}
	e.freed(e.slab.Age())
	e.freed(e.buffers.slab.Age())
	e.settle()
	e.mu.Unlock()
	e.startWorker()
}

// reapAtRest takes back the send memory of what is complete, which nobody else does on a lane that rests. mu is
// held.
func (e *laneEnd) reapAtRest() {
	if !e.staging.large.IsZero() || len(e.buffers.sending) > 0 {
		e.reap()
	}
}

// lookAtRing has a ring shrink that was found unused often enough, and reports whether it is
// to be looked at again. mu is held.
func (e *laneEnd) lookAtRing(s *stream, enough int) bool {
	rx := s.st.Receiver()
	switch {
	case s.end.closed, s.end.freed:
		return false // its rings go when the peer has ended, too
	case s.st.Ended():
		// Nothing comes any more, so there is no other ring to move to.
		if rx.Buffered() == 0 && !s.in.copying {
			s.freeRings()
			return false
		}
		return true
	case rx.Ring().Size <= s.smallest() && !rx.Offering() && !s.in.resizing:
		return false
	}
	if s.in.age.look(rx.ReceivedBytes(), rx.Buffered(), s.smallest()) >= enough && !rx.Offering() && !s.in.resizing {
		s.in.wants = false
		e.resizeDue(s)
	}
	return true
}
