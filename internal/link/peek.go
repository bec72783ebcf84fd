package link

import (
	"net"
	"os"
)

// Peek waits for unread bytes and returns those that lie together, at most limit if that is above 0.
// They stay where they are, also when the stream is closed, until Consume or Unpeek, and count as read
// if read says so. The peer can write there.
func (h *Stream) Peek(limit int, read bool) ([]byte, error) {
	s := h.now()
	b, err := s.peek(limit, read)
	for err == errMoving {
		if s, err = h.follow(s, &s.in.waiter, &s.in.turn); err == nil {
			b, err = s.peek(limit, read)
		}
	}
	return b, err
}

// Consume consumes the first n bytes of what Peek has returned, and ends its use. placed says that the
// program has read them there. What is left of bytes that count as read does so until it is read again.
func (h *Stream) Consume(n int, placed bool) { h.now().endPeek(n, placed, true) }

// Unpeek ends the use of what Peek has returned, which is unread again.
func (h *Stream) Unpeek() { h.now().endPeek(0, false, false) }

func (s *stream) peek(limit int, read bool) ([]byte, error) {
	e := s.e
	e.mu.Lock()
	s.in.turn.begin(&e.mu)
	b, err := s.peekLocked(limit)
	if read && err == nil {
		s.in.borrowed = int32(s.ringBytes(len(b)))
	}
	s.noteReadErr(err)
	s.endReading()
	e.mu.Unlock()
	e.startWorker()
	return b, err
}

// peekLocked is peek for a caller that holds mu and has the turn.
func (s *stream) peekLocked(limit int) ([]byte, error) {
	if s.in.waiter.expired() {
		if s.end.gone.Load() {
			return nil, s.readErr()
		}
		return nil, os.ErrDeadlineExceeded
	}
	for {
		b, err := s.tryPeek(limit)
		if b != nil {
			s.in.sentThen = s.st.Sender().SentBytes()
		}
		if b != nil || err != nil {
			return b, err
		}
		if err := s.awaitReadable(); err != nil {
			return nil, err
		}
	}
}

// tryPeek is peekLocked without waiting.
func (s *stream) tryPeek(limit int) ([]byte, error) {
	rx := s.st.Receiver()
	switch {
	case s.end.closed:
		return nil, net.ErrClosed
	case rx.Buffered() == 0 || s.in.corrupt != nil:
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
	s.in.peeked, s.in.borrowed = true, 0
	if limit > 0 {
		b = b[:min(len(b), limit):min(len(b), limit)]
	}
	return b, nil
}

func (s *stream) endPeek(n int, placed, borrowed bool) {
	e := s.e
	e.mu.Lock()
	if s.in.peeked {
		s.in.peeked = false
		if !borrowed {
			s.in.borrowed = 0
		}
		if n > 0 {
			used := s.ringBytes(n)
			if f := s.st.Frames(); f != nil && n <= f.Left() {
				f.Take(n)
				s.counts.count().framingIn += uint64(used - n)
			}
			if s.consume(used) {
				if placed {
					s.counts.count().placedIn += uint64(n)
				} else {
					s.counts.count().discarded += uint64(n)
				}
				if e.err == nil {
					e.settle()
				}
			}
		}
		s.endUse()
	}
	e.mu.Unlock()
	e.startWorker()
}
