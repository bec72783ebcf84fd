package rdmanet

import "sync/atomic"

// A stream carries the bytes of a Conn: a half for each direction, each with a lock of its
// own, and the termination, which is what they have in common. Neither half reaches into the
// other without its lock.
type stream struct {
	owner owner
	place entry
	ep    *endpoint
	term  termination

	statuses atomic.Uint32 // completion statuses that countStatus has counted
	rescued  atomic.Uint32 // sleepers that rescue woke
	busyPoll atomic.Int64  // of SetBusyPoll

	recv receiveHalf
	// Readers and writers may run on different processors: what is seldom written lies
	// between what either of them writes, at least apart bytes.
	keepAlive keepAlive
	send      sendHalf
}

// apart is how far apart two processors can write without waiting for each other: two lines
// of a cache, which are fetched together.
const apart = 128

// An owner is what a stream is part of: its Conn.
type owner interface {
	enter() bool         // keeps the stream from being destroyed; false once it was closed
	leave()              // ends that
	failures() *failures // of the device, to count in; nil before the connection stands
}

// waiter is that of a direction.
func (s *stream) waiter(d direction) *waiter {
	if d == dirRead {
		return &s.recv.waiter
	}
	return &s.send.waiter
}

// wake ends the waits in both directions, as far as these have ended.
func (s *stream) wake() {
	s.endWait(dirRead)
	s.endWait(dirWrite)
}
