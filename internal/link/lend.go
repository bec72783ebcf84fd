package link

import (
	"net"
	"os"
)

// Lend waits for unread bytes and returns those that lie together, at most limit if that is
// above 0; without a limit they are as good as read. They stay where they are, also when the stream is closed,
// until Take or Return. The peer can write there.
func (h *Stream) Lend(limit int) ([]byte, error) {
	s := h.now()
	b, err := s.lend(limit)
	for err == errMoving {
		if s, err = h.follow(s, &s.reader, &s.reading); err == nil {
			b, err = s.lend(limit)
		}
	}
	return b, err
}

// Take consumes the first n bytes of what Lend has returned, and ends its use.
func (h *Stream) Take(n int) { h.now().giveBack(n) }

// Return ends the use of what Lend has returned, which is unread again.
func (h *Stream) Return() { h.now().giveBack(0) }

func (s *stream) lend(limit int) ([]byte, error) {
	e := s.e
	e.mu.Lock()
	s.reading.begin(&e.mu)
	b, err := s.awaitPeek(limit)
	s.tells(err)
	s.reading.end()
	e.mu.Unlock()
	e.startWorker()
	return b, err
}

// awaitPeek is lend for who holds mu and has the turn.
func (s *stream) awaitPeek(limit int) ([]byte, error) {
	if s.reader.expired() {
		if s.gone.Load() {
			return nil, s.readErr()
		}
		return nil, os.ErrDeadlineExceeded
	}
	for {
		b, err := s.peek(limit)
		if b != nil || err != nil {
			return b, err
		}
		if err := s.e.wait(&s.reader, s.readable); err != nil {
			return nil, err
		}
	}
}

// peek is awaitPeek without waiting.
func (s *stream) peek(limit int) ([]byte, error) {
	rx := s.st.Receiver()
	switch {
	case s.closed:
		return nil, net.ErrClosed
	case rx.Buffered() == 0 || s.corrupt != nil:
		return nil, s.endErr()
	}
	var b []byte
	if s.st.Frames() == nil {
		b = s.unread()
	} else {
		var err error
		if b, err = s.openFrame(); err != nil {
			return nil, err
		}
	}
	s.lent = true
	if limit > 0 {
		b = b[:min(len(b), limit):min(len(b), limit)]
	} else {
		s.borrowed = int32(s.ringBytes(len(b)))
	}
	return b, nil
}

func (s *stream) giveBack(n int) {
	e := s.e
	e.mu.Lock()
	if s.lent {
		s.lent, s.borrowed = false, 0
		if n > 0 {
			used := s.ringBytes(n)
			if f := s.st.Frames(); f != nil && n <= f.Left() {
				f.Take(n)
				s.counts.framingIn += uint64(used - n)
			}
			if s.consume(used) && e.err == nil {
				e.settle()
			}
		}
		s.free() // if it was closed meanwhile
	}
	e.mu.Unlock()
	e.startWorker()
}
