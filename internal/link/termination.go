package link

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// termination is how far a stream has come to its end, at either end of it.
type termination struct {
	cause    error       // why it has failed
	finished func()      // see OnFinish, which sets that of an accepted stream without the lock
	limit    *time.Timer // of FinishWithin
	said     uint64      // sendQueue.posted behind its end; 0: it was not said
	gone     atomic.Bool // closed, for calls without the lock

	shut         bool // CloseWrite was called
	readShut     bool // CloseRead was
	closed       bool // Close was
	told         bool // the program knows that the peer has closed
	writeRefused bool // a Write has failed, or lost bytes, since the peer has closed
	lost         bool // the peer was silent for too long
	used         bool // it counts among those that the program has open
	counted      bool // and among those of which the lane has to say more
	freed        bool // the rings were given back
	portless     bool // its port was
	summed       bool // it is finished: who sums up what it has counted does so now, and messages count no more
}

// failWith ends the stream for a cause, the first of which counts. mu is held.
func (s *stream) failWith(err error) {
	if s.end.cause == nil {
		s.end.cause = err
	}
}

// failure is why s has failed, nil if it has not or is closed. mu is held.
func (s *stream) failure() error {
	if s.end.cause != nil && !s.end.closed {
		return s.end.cause // though a Read may find the peer's end before
	}
	if err := s.readErr(); !s.end.closed && err != io.EOF && err != errMoving {
		return err
	}
	return nil
}

// readErr is why nothing more can be read beyond what is buffered, nil if something may come. An end
// that arrived behind all bytes is one whatever became of the stream then, as over TCP. mu is held.
func (s *stream) readErr() error {
	switch {
	case s.end.closed:
		return net.ErrClosed
	case s.st.EndedInOrder():
		return io.EOF
	case s.end.cause != nil:
		return s.end.cause
	case s.moving() && !s.end.readShut:
		return errMoving
	case s.st.Ended(), s.end.readShut:
		return io.EOF
	case s.e.err != nil:
		return ended(s.e.err)
	}
	return nil
}

// writeErr is why nothing can be written. mu is held.
func (s *stream) writeErr() error {
	switch {
	case s.end.closed:
		return net.ErrClosed
	case s.end.shut:
		return syscall.EPIPE
	case s.end.cause == error(syscall.ECONNRESET) && s.st.EndedInOrder(): // as over TCP
		return syscall.EPIPE
	case s.end.cause != nil:
		return s.end.cause
	case s.moving():
		return errMoving
	case s.st.Quiet():
		return syscall.EPIPE
	case s.e.err != nil:
		return ended(s.e.err)
	}
	return nil
}

// over reports whether neither end can send any more, as TCP's shutdown(2) sees it. mu is held.
func (s *stream) over() bool {
	if s.moving() {
		return false
	}
	if s.end.cause != nil || s.e.err != nil && !s.st.Ended() {
		return true
	}
	// What is written behind the peer's Close makes TCP's kernel there reset the connection.
	return s.st.Ended() && (s.end.shut || s.end.writeRefused)
}

func (s *stream) CloseWrite() error {
	s.e.mu.Lock()
	s.takeIn()
	return s.changeLocked(func() error {
		switch {
		case s.end.closed:
			return net.ErrClosed
		case s.over():
			return syscall.ENOTCONN
		case s.end.shut:
			return nil
		}
		s.end.shut = true
		if s.moving() {
			return nil
		}
		if s.end.readShut {
			s.e.state.Close(s.st)
		} else if !s.st.Quiet() {
			return s.e.state.CloseWrite(s.st)
		}
		return nil
	})
}

func (s *stream) closeRead() error {
	s.e.mu.Lock()
	s.takeIn()
	return s.changeLocked(func() error {
		switch {
		case s.end.closed:
			return net.ErrClosed
		case s.over():
			return syscall.ENOTCONN
		case s.end.readShut:
			return nil
		}
		s.end.readShut = true
		if s.end.shut && !s.moving() {
			s.e.state.Close(s.st)
		}
		return nil
	})
}

func (s *stream) close(abort bool) error {
	s.e.mu.Lock()
	s.takeIn()
	return s.changeLocked(func() error {
		if s.end.closed {
			return net.ErrClosed
		}
		s.end.closed = true
		s.end.gone.Store(true)
		s.unuse()
		if s.moving() {
			if s.re.aborted = abort; abort {
				s.re.stop()
			}
			return nil
		}
		if abort || s.st.Receiver().Buffered() > uint64(s.in.borrowed) {
			s.e.state.Reset(s.st, lane.CodeReset)
		} else {
			s.e.state.Close(s.st)
		}
		s.free()
		s.freePort()
		s.in.waiter.release(s.e)
		s.out.waiter.release(s.e)
		s.awaitConfirmation()
		if s.e.polling.kept.number != 0 && s.e.role == lane.RoleListener && !s.e.owner.takesOver(s.e) {
			s.e.giveUpKept() // no call would report the new streams that come
		}
		return nil
	})
}

// takeIn takes in what has come for s and no call has read, unless the peer has said that there is
// nothing more. mu is held when it is called and when it returns.
func (s *stream) takeIn() {
	e := s.e
	if e.err != nil || s.st.Ended() {
		return
	}
	e.tasks.Add(1)
	e.pollOnce()
	e.tasks.Done()
}

// changeLocked does something to the stream that its waiting calls have to see. mu is held, and released.
func (s *stream) changeLocked(f func() error) error {
	e := s.e
	err := f()
	if e.err == nil {
		e.settle()
	}
	s.in.waiter.found(e)
	s.out.waiter.found(e)
	if s.moving() {
		s.in.waiter.wake(s.e)
		s.out.waiter.wake(s.e)
	}
	e.mu.Unlock()
	e.startWorker()
	if errors.Is(err, lane.ErrStream) {
		return syscall.EPIPE
	}
	return err
}

// free gives the rings back if nobody writes to them or reads from them any more. mu is held.
func (s *stream) free() {
	if !s.end.closed || !s.st.Quiet() && !s.e.torn || s.moving() {
		return
	}
	s.finish()
	if s.end.freed || s.in.copying || s.in.peeked {
		return
	}
	s.end.freed = true
	s.freeRings()
	_ = s.e.slab.Release()
	s.uncount()
	s.e.dropTables()
}

// endUse is free behind a use of the rings during which the program may have closed the stream. A dial may
// have waited for its port, which goes on then. mu is held.
func (s *stream) endUse() {
	was := s.end.freed
	if s.free(); s.end.freed && !was && s.e.err == nil {
		s.e.settle()
	}
}

// unuse records that the program has closed the stream, or has it elsewhere. mu is held.
func (s *stream) unuse() {
	if s.end.used {
		s.end.used = false
		if s.e.inUse.Add(-1) == 0 {
			s.e.ends.allClosed()
		}
	}
}

// uncount forgets the stream. The lane has no more to say of it. mu is held.
func (s *stream) uncount() {
	e := s.e
	if !s.end.counted {
		return
	}
	s.counts.keepAlives = s.keepAlives()
	if e.countsFor == s {
		e.countFor(nil)
	}
	s.end.counted = false
	s.e.peerMemory.leave(s)
	e.dialer.answered(s)
	e.disown(s)
	if s.end.lost {
		e.alive.lost--
	}
	if e.streams.At(s.st.ID()) == s {
		e.streams.Set(s.st.ID(), nil)
	}
	s.freePort()
	e.live--
	e.taken.Store(int32(e.live))
	if e.live == 0 && e.err == nil {
		e.owner.emptied(e)
	}
}

// freePort gives the port back when the lane has no more to say of the stream and, at a
// listener, the application has closed it. A port that the peer's program has bound it may have
// again before that, as over TCP. mu is held.
func (s *stream) freePort() {
	e := s.e
	switch {
	case s.end.counted || s.end.portless:
		return
	case e.role == lane.RoleDialer:
		if e.dialer.busy && s.port == e.dialer.port {
			e.dialer.busy = false
			defer e.dialer.refill()
		}
	case s.end.closed, s.port == e.listener.ports.bound:
		e.listener.ports.ended(s.port)
	default:
		return
	}
	s.end.portless = true
}
