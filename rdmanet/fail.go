package rdmanet

import (
	"errors"
	"syscall"
)

// How a connection fails. All of these may be called with or without locks.

// fail ends the connection with a cause; the first one counts. It wakes all who wait.
func (s *stream) fail(errno syscall.Errno, detail error) {
	s.setCause(errno, detail)
	if s.term.fail() {
		s.disconnect()
		s.wake()
	}
}

// failAfterDrain is fail for a connection that can send no more, while what arrived before
// may still lie in the receive queue: it fails when that has told all, by its flush.
func (s *stream) failAfterDrain(errno syscall.Errno, detail error) {
	s.setCause(errno, detail)
	s.endSending(false)
}

// failGone fails a connection whose peer has gone.
func (s *stream) failGone() { s.fail(s.term.goneErrno(), ErrPeerGone) }

// endSending notes that nothing can be sent any more. How the connection ends, the receive
// queue tells; unanswered is for what it then says of a peer that has gone.
func (s *stream) endSending(unanswered bool) {
	s.term.endSending(unanswered)
	s.disconnect()
}

// setCause notes why the connection is going to fail, unless that is known.
func (s *stream) setCause(errno syscall.Errno, detail error) {
	if s.term.setCause(newConnError(errno, detail)) {
		s.countFailure(errno)
	}
}

// disconnect sees to it that the peer learns of the end, unless it was told, and that what
// is posted here comes back.
func (s *stream) disconnect() {
	if s.term.corruptTold() || s.outOfReach() || !s.term.disconnect() {
		return
	}
	// Not here: it may have to wait for a peer that does not listen, and locks are held.
	go s.ep.abort()
}

// outOfReach reports whether the connection fails because the network, or the peer, has gone.
// Then the QP is in ERR or given up. To disconnect would make a reset of the peer's own
// timeout where one direction still works; and a goodbye over a link that is down takes
// soft-RoCE's connection manager down with it, for all connections. Close disconnects.
func (s *stream) outOfReach() bool {
	cause := s.term.err()
	return !s.ep.sameHost && (cause == nil || errors.Is(cause, ErrPeerGone))
}
