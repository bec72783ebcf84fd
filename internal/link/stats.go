package link

import "time"

// stalls is told when a Write begins to wait for room, and when it has waited. mu is held.
func (s *stream) stalls(waits bool) {
	s.e.stalling(waits)
	n := &s.counts
	if waits {
		n.stalled = time.Now()
		return
	}
	n.stalls++
	n.stallTime += time.Since(n.stalled)
	n.stalled = time.Time{}
}
