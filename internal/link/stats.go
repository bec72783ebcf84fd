package link

import (
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// stalls is told when a Write begins to wait for room, and when it has waited. mu is held.
func (s *stream) stalls(waits bool) {
	s.e.stalling(waits)
	s.counts.stalls(waits)
}

// stalls counts a Write that begins to wait, or has waited.
func (c *counts) stalls(waits bool) {
	n := c.count()
	if waits {
		n.stalled = time.Since(epoch)
		return
	}
	n.stalls++
	n.stallTime += time.Since(epoch) - n.stalled
	n.stalled = 0
}

// stalledUntil returns how often Writes have waited until now, since epoch, and for how long, one that
// waits still included.
func (c *counts) stalledUntil(now time.Duration) (n uint64, took time.Duration) {
	r := c.seldom()
	if r.stalled == 0 {
		return r.stalls, r.stallTime
	}
	return r.stalls + 1, r.stallTime + now - r.stalled
}

// until returns what was counted until now, since epoch, in counts of its own. A Write that waits still has waited
// until then.
func (c *counts) until(now time.Duration) counts {
	was := *c
	if c.rare != nil {
		rare := *c.rare
		rare.stalls, rare.stallTime = c.stalledUntil(now)
		rare.stalled = 0
		was.rare = &rare
	}
	return was
}

// add adds what the stream has counted that s was before it was dialled again. Messages that were sent once more
// count twice, their bytes do not: what is told of bytes in rings is of those that s has now. mu is held.
func (s *stream) add(was *counts) {
	n := &s.counts
	n.sent += was.sent
	n.received += was.received
	n.creditsOut += was.creditsOut
	n.creditsIn += was.creditsIn
	n.recordsOut += was.recordsOut
	n.recordsIn += was.recordsIn
	n.wakeups += was.wakeups
	n.quiet += was.quiet
	if s.end.counted { // they are told from those of the lane
		n.keepAlives -= was.keepAlives
	} else {
		n.keepAlives += was.keepAlives
	}
	if r := was.rare; r != nil {
		n := n.count()
		n.grown += r.grown
		n.stalls += r.stalls
		n.stallTime += r.stallTime
		n.placedOut += r.placedOut
	}
}

// countArrived counts a message that is no record, about s if that is not nil. mu is held.
func (e *laneEnd) countArrived(s *stream, d lane.Doorbell) {
	switch d.Type {
	case lane.TypeData:
		e.counts.bytesIn += uint64(d.N)
		if s != nil && !s.end.summed {
			s.counts.received++
		}
	case lane.TypeCredit:
		if s != nil && !s.end.summed {
			s.counts.creditsIn++
		}
	}
}

// countRecord counts a record that has arrived and was taken for right. mu is held.
func (e *laneEnd) countRecord(record []byte) {
	if s := e.about(lane.RecordHeader(record)); s != nil {
		s.counts.recordsIn++
	}
}

// countSaid counts a message that is no data and is to be posted, and returns the stream that it is
// about, if there is one. mu is held.
func (e *laneEnd) countSaid(m *lane.Message) *stream {
	if m.Record.Kind != 0 {
		s := e.about(m.Record.Kind, m.Record.Stream)
		if s != nil {
			s.counts.recordsOut++
		}
		return s
	}
	if d, err := lane.ParseDoorbell(m.Imm); err == nil && d.Type == lane.TypeCredit {
		if s := e.countedAt(d.Stream); s != nil {
			s.counts.creditsOut++
			return s
		}
	}
	return nil
}

// countFor has whom the messages that follow wake be counted for s, which may be nil. mu is held.
func (e *laneEnd) countFor(s *stream) {
	if s != e.countsFor {
		e.countWoken()
		e.countsFor = s
	}
}

// countWoken counts whom messages have woken since it was last called. mu is held.
func (e *laneEnd) countWoken() {
	q := &e.sq
	if q.counter == nil {
		return
	}
	now := q.counter.QPStats()
	if s := e.countsFor; s != nil {
		s.counts.wakeups += now.WakeupsSent - q.woken.WakeupsSent
		s.counts.quiet += now.WakeupsSuppressed - q.woken.WakeupsSuppressed
	}
	q.woken = now
}

// countedAt is the stream of an id for which messages count, nil if there is none. mu is held.
func (e *laneEnd) countedAt(id lane.ID) *stream {
	if s := e.streams.At(id); s != nil && !s.end.summed {
		return s
	}
	return nil
}

// about is the stream that a record is about and counts for, nil if there is none. mu is held.
func (e *laneEnd) about(kind lane.Kind, id lane.ID) *stream {
	switch kind {
	case lane.KindPlaces, lane.KindRelease: // ids without a stream
		return nil
	}
	return e.countedAt(id)
}
