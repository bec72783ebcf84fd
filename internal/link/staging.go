package link

import "slices"

// stagingSize is the send memory of a lane, and so bounds what is posted on it and not
// completed on a device that looks at the source after the post.
const stagingSize = 256 << 10

// staging gives out send memory in order, as a ring: requests complete in order as well.
// What was taken may be filled without a lock. The lane's lock guards the rest.
type staging struct {
	size    int
	head    int // where the next piece begins
	entries []*staged
	spare   []*staged
	turns   sendTurns
}

// staged is a piece of send memory.
type staged struct {
	off, len int
	framed   bool   // it begins with room for a header
	addr     uint64 // of its first byte
	lkey     uint32
	last     uint64 // sendQueue.posted behind the last request that reads it; 0 until then
	unused   bool   // no request does
}

// take returns n bytes that lie together, nil if there are none now.
func (s *staging) take(n int) *staged {
	at := s.head
	if len(s.entries) > 0 {
		tail := s.entries[0].off
		switch {
		case at > tail && at+n > s.size: // what is left there is skipped
			at = 0
			fallthrough
		case at <= tail:
			if at+n > tail {
				return nil
			}
		}
	} else {
		at = 0
	}
	if at+n > s.size {
		return nil
	}
	var e *staged
	if k := len(s.spare); k > 0 {
		e, s.spare = s.spare[k-1], s.spare[:k-1]
	} else {
		e = new(staged)
	}
	*e = staged{off: at, len: n}
	s.head = at + n
	s.entries = append(s.entries, e)
	return e
}

// free returns how many bytes nobody has, some of which may not lie together.
func (s *staging) free() int {
	switch {
	case len(s.entries) == 0:
		return s.size
	case s.head > s.entries[0].off:
		return s.size - s.head + s.entries[0].off
	}
	return s.entries[0].off - s.head
}

// freed takes back what completed requests have read, and reports whether that was anything.
func (s *staging) freed(completed uint64) bool {
	n := 0
	for n < len(s.entries) && (s.entries[n].unused || s.entries[n].last-1 < completed) { // 0 wraps around
		n++
	}
	s.spare = append(s.spare, s.entries[:n]...)
	s.entries = slices.Delete(s.entries, 0, n)
	return n > 0
}
