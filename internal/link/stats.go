package link

// stalls is told when a Write begins to wait for room, and when it has waited.
func (s *stream) stalls(waits bool) {
	e := s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stalling(waits)
}
