package link

import "os"

// copyUnderLock is the most that Read copies while it holds the lane's lock: about as long as
// letting go of it and taking it again costs.
const copyUnderLock = 4 << 10

// Read reads at least one byte into p, waiting for it if need be, and takes all that fits of
// what has arrived. It returns io.EOF after the peer's orderly end and all its bytes. What
// arrived before the stream failed is returned before the failure is.
func (s *stream) Read(p []byte) (int, error) {
	e := s.e
	if !e.mu.tryLock() {
		e.mu.Lock()
	}
	s.in.turn.begin(&e.mu)
	n, err := s.read(p)
	s.noteReadErr(err)
	s.endReading()
	e.mu.Unlock()
	e.startWorker()
	return n, err
}

func (s *stream) read(p []byte) (int, error) {
	e := s.e
	if s.in.waiter.expired() {
		if s.end.gone.Load() {
			return 0, s.readErr()
		}
		return 0, os.ErrDeadlineExceeded
	}
	for polled := false; ; polled = true { // who has waited takes what was found by that
		if !polled && s.st.Receiver().Buffered() < uint64(len(p)) {
			e.pollKept()
		}
		n, err := s.take(p)
		if n > 0 {
			s.in.sentThen = s.st.Sender().SentBytes()
		}
		if n == 0 && err == nil && len(p) > 0 {
			if err = s.awaitReadable(); err == nil {
				continue
			}
		}
		return n, err
	}
}

// awaitReadable waits until there may be something to read. mu is held when it is called and when it
// returns.
func (s *stream) awaitReadable() error {
	sent := s.st.Sender().SentBytes()
	s.in.waiter.ahead, s.in.waiter.delay = sent-s.in.sentThen, s.coalesce(sent)
	return s.e.wait(&s.in.waiter, s.readable)
}

// readable reports whether a Read need not wait. mu is held.
func (s *stream) readable() bool { return s.st.Receiver().Buffered() > 0 || s.readErr() != nil }

// take copies what has arrived. mu is held when it is called and when it returns.
func (s *stream) take(p []byte) (n int, err error) {
	if s.st.Frames() != nil {
		return s.takeFrames(p)
	}
	e := s.e
	rx := s.st.Receiver()
	for n < len(p) && !s.end.closed && rx.Buffered() > 0 {
		b := s.unread()
		b = b[:min(len(b), len(p)-n)]
		if len(b) <= copyUnderLock {
			copy(p[n:], b)
		} else {
			s.in.copying, s.in.borrowed = true, int32(len(b))
			e.mu.Unlock()
			copy(p[n:], b)
			e.mu.Lock()
			s.in.copying, s.in.borrowed = false, 0
			s.endUse()
		}
		n += len(b)
		if !s.consume(len(b)) {
			break
		}
	}
	if n == 0 {
		err = s.readErr()
	} else if e.err == nil && e.state.CreditDue() {
		e.settle()
	}
	return n, err
}

// unread returns what has arrived and lies together. There is some. mu is held.
func (s *stream) unread() []byte {
	span := s.st.Receiver().Readable()
	p := &s.in.pieces[0]
	if len(s.in.pieces) > 1 {
		p = &s.in.pieces[s.pieceOf(span.Ring.Addr)]
	}
	return p.Bytes()[span.Off:][:span.Len:span.Len]
}

// consume gives n bytes back to the peer, and reports whether the lane stands it. mu is held.
func (s *stream) consume(n int) bool {
	if err := s.e.state.Consume(s.st, n); err != nil {
		s.e.failLocked(err) // the machine and this end do not agree
		return false
	}
	if s.in.borrowed > 0 {
		s.in.borrowed = max(s.in.borrowed-int32(n), 0)
	}
	if len(s.in.pieces) > 1 {
		s.reclaim()
	}
	return true
}

// pieceOf returns which of the pieces is the ring at addr.
func (s *stream) pieceOf(addr uint64) int {
	for i, p := range s.in.pieces {
		if p.Addr() == addr {
			return i
		}
	}
	return 0
}
