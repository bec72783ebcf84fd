package link

import "math/bits"

// SetReadBuffer has the peer offered a ring of at least so many bytes, a power of two within
// Config.MaxRing, and never a smaller one afterwards. There may be no memory for it.
func (h *Stream) SetReadBuffer(n int) {
	s := h.lockNow()
	defer h.unlock()
	s.setReadBuffer(n)
}

func (s *stream) setReadBuffer(n int) {
	e := s.e
	e.mu.Lock()
	size := e.cfg.MaxRing
	if n < int(size) {
		size = 1 << bits.Len(uint(max(n, 1)-1))
	}
	if s.in.least = max(s.in.least, size); s.st.Receiver().Ring().Size < s.in.least && !s.moving() {
		e.growDue(s)
	}
	e.mu.Unlock()
	e.startWorker()
}

// smallest is the ring that a stream goes back to. mu is held.
func (s *stream) smallest() uint32 { return max(s.e.cfg.FirstRing, s.in.least) }
