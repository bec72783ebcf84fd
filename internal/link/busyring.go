package link

import "time"

// A ring grows for lack of room. It also grows while its stream is busy, since each half of a ring costs a
// credit: a message of its own, which takes as long as a small one with data.
const (
	// busyFills is how many times a stream fills its ring to get a larger one, within what busyWithin says.
	busyFills = 4
	// busyRing is the size up to which that is so for a stream that is used all the time, and fastRing for
	// one that would take a credit every other moment. There are never many of those.
	busyRing, busyTime = 16 << 10, 250 * time.Millisecond
	fastRing, fastTime = 256 << 10, 10 * time.Millisecond
)

// busyWithin is within which time a stream that gets a larger ring has filled one of size bytes busyFills
// times, 0 if it gets one only for lack of room.
func busyWithin(size uint32) time.Duration {
	switch {
	case size < busyRing:
		return busyTime
	case size < fastRing:
		return fastTime
	}
	return 0
}

// wantsRing reports whether the peer is to be offered a larger ring. mu is held.
func (s *stream) wantsRing() bool {
	rx := s.st.Receiver()
	if rx.WantsRing() {
		return true
	}
	size := rx.Ring().Size
	if rx.ReceivedBytes()-s.mark < busyFills*uint64(size) {
		return false
	}
	now, last := time.Since(epoch), s.marked
	s.mark, s.marked = rx.ReceivedBytes(), now
	return last != 0 && now-last < busyWithin(size)
}
