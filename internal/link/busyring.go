package link

import "time"

// A ring grows for lack of room. It also grows while its stream is busy, since each half of a ring costs a
// credit: a message of its own, which takes as long as a small one with data.
const (
	// busyFills is how many times a stream fills its ring to get a larger one, within what busyWithin says.
	busyFills = 4
	// busyRing is the size up to which that is so for a stream that is used all the time.
	busyRing, busyTime = 16 << 10, 250 * time.Millisecond
	// fastRing is that for one that is fast, of which there are never many, and needs a credit for few
	// messages. The many small ones of others had better find the same cache lines again.
	fastRing, fastTime, fastMessage = 256 << 10, 10 * time.Millisecond, 512
)

// busyWithin is within which time a stream that gets a larger ring has filled one of size bytes busyFills
// times, by messages of so many bytes; 0 if it gets one only for lack of room.
func busyWithin(size, mean uint32) time.Duration {
	switch {
	case size < busyRing:
		return busyTime
	case size < fastRing && mean >= fastMessage:
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
	received, size := uint32(rx.ReceivedBytes()), rx.Ring().Size
	if received-s.mark < busyFills*size {
		return false
	}
	now, last, messages := time.Since(epoch), s.marked, uint32(s.counts.received)
	mean := (received - s.mark) / max(messages-s.messages, 1)
	s.mark, s.marked, s.messages = received, now, messages
	return last != 0 && now-last < busyWithin(size, mean)
}
