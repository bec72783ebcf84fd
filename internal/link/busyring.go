package link

import "time"

// A ring grows for lack of room. It also grows while its stream is busy, since each half of a ring costs a
// credit: a message of its own, which takes as long as a small one with data.
const (
	// A ring below busyRing grows when its stream has filled it busyFills times within busyTime, which one
	// does that is used all the time.
	busyRing, busyFills, busyTime = 16 << 10, 4, 250 * time.Millisecond
	// A larger one grows up to fastRing when its stream has brought what fills one of busyRing fastFills times
	// within fastTime, by messages of fastMessage bytes on average: of smaller ones there are many for a credit,
	// and they had better find the same cache lines again. What follows one below fastRing is no larger than that.
	fastRing, fastFills, fastTime, fastMessage = 256 << 10, 16, 40 * time.Millisecond, 512
)

// busyFor returns how many times, and within which time, a stream has filled a ring of size bytes that gets a
// larger one. No times: it gets one only for lack of room.
func busyFor(size uint32) (fills uint32, within time.Duration) {
	switch {
	case size < busyRing:
		return busyFills, busyTime
	case size < fastRing:
		return fastFills * busyRing / size, fastTime
	}
	return 0, 0
}

// wantsRing reports whether the peer is to be offered a larger ring. mu is held.
func (s *stream) wantsRing() bool {
	rx := s.st.Receiver()
	if rx.WantsRing() {
		return !s.holdsBack()
	}
	size := rx.Ring().Size
	fills, within := busyFor(size)
	filled := uint32(rx.ReceivedBytes()) - s.in.mark
	if fills == 0 || filled < fills*size || rx.Offering() {
		return false
	}
	now, last, messages := time.Since(epoch), s.in.marked, uint32(s.counts.received)
	mean := filled / max(messages-s.in.messages, 1)
	s.in.mark, s.in.marked, s.in.messages = s.in.mark+filled, now, messages
	return last != 0 && now-last < within && (size < busyRing || mean >= fastMessage)
}
