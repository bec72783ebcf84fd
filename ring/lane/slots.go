package lane

import "github.com/rdmanet/go-rdmanet/internal/cacheline"

const (
	// MinDepth and MaxDepth bound the receives that an end keeps posted for its lane.
	MinDepth = 16
	MaxDepth = 32768
	// SlotsReserve is how many of the peer's receives are kept for returns of slots.
	SlotsReserve = 4
	// ControlReserve is how many more of them are kept from data, for records and credits.
	ControlReserve = 4
	// bulk is from how many bytes on the wire a message of data wakes a peer that sleeps although more
	// follow: it reads them while those are written. To wake it takes less time than to copy as many.
	bulk = 16 << 10
	// MinPlaces and MaxPlaces bound how many records the ring of records holds. It is a power
	// of two, and at least a quarter of the receives of either end, so that a record finds one.
	MinPlaces = 4
	MaxPlaces = 4096
)

// slots counts the receives of a lane at one of its ends. A slot is a receive that is posted at
// the peer: each message uses one up, and the peer returns it after it has posted the receive
// again. The same goes for the receives of this end and the messages of the peer.
//
// Receives are posted again when their message was taken from the completion queue, whether or
// not its bytes were read, up to a quarter of them together. A return of slots is due when a
// quarter of the own receives, T of N, was not returned yet, and goes before everything else.
//
// # Why a return finds a slot
//
// Returns use up receives as well, and two ends without slots could wait for each other for ever.
// So the last SlotsReserve slots are for returns alone, and that is enough. Let A send its first
// return out of the reserve. It has returned everything then, and at most N-4 messages of B are
// under way that are not returns. To receive that return, B receives all that A sent before it:
// at least N-4 messages, which is more than T. So B owes A a return, which goes before everything
// else that B sends later. Until it arrives, A receives at most N-4 messages and owes at most 3
// returns more for them, as N-4 is less than 4T. That is four in all. And two ends that have
// nothing to return but returns fall silent, since one return answers T messages.
//
// # Why a record finds a place
//
// A place in the ring of records is free again when the slot of its message is returned, and a peer
// that owes less than T returns nothing. So there are at least T places: of two ends that have
// nothing under way, and nothing due to return, either may send a record.
//
// # Shares
//
// A stream has a share, an eighth of the slots and no more than turnSlots. It may use more while more than half
// of all slots are free, so that a stream alone has half of them. One that sends faster than the peer receives
// cannot stop the others. As a peer with nothing due owes less than T, more than half of the slots
// are free then, and no stream waits for ever because of its share.
type slots struct {
	depth int     // receives at the peer
	free  int     // of them, not used up
	used  []usage // by messages in order, from head on
	head  int
	uses  int // of used

	own      int // receives of this end
	arrived  int // messages that came, less those returned
	posted   int // of arrived, how many receives are posted again
	places   uint32
	pending  uint32        // records whose slots the peer has not returned
	unmarked int           // messages since the last solicited one
	streams  Table[uint16] // messages under way
}

// use is what a message used up beside a receive.
type use struct {
	stream ID   // whose share
	record bool // a place in the ring of records
}

// usage is what n messages in a row used up, which is the same for each: where one stream sends, they
// are counted together.
type usage struct {
	use
	n uint16
}

// newSlots returns the accounting of an end that has own receives posted and whose peer has
// depth, with places for records. Streams have the ids 1 to streams. The error matches
// ring.ErrConfig.
func newSlots(own, depth, places int, streams ID) (slots, error) {
	switch {
	case own < MinDepth || own > MaxDepth || depth < MinDepth || depth > MaxDepth:
		return slots{}, misuse("receives %d and %d are not from %d to %d", own, depth, MinDepth, MaxDepth)
	case places < MinPlaces || places > MaxPlaces || places&(places-1) != 0:
		return slots{}, misuse("%d places for records are not a power of two from %d to %d", places, MinPlaces, MaxPlaces)
	case places < max(own, depth)/4:
		return slots{}, misuse("%d places for records are fewer than a quarter of %d and %d receives", places, own, depth)
	case streams == 0 || streams > MaxStream:
		return slots{}, misuse("%d streams are not from 1 to %d", streams, MaxStream)
	}
	return slots{
		depth: depth, free: depth, used: make([]usage, depth),
		own: own, places: uint32(places),
		streams: make(Table[uint16], 0, cacheline.Size/2), // as of a queue
	}, nil
}

// Free returns how many of the peer's receives are unused.
func (s *slots) Free() int { return s.free }

// Due reports whether a return has to be sent, before anything else.
func (s *slots) Due() bool { return s.posted >= s.own/4 }

// CanReturn reports whether a return is due and may be sent.
func (s *slots) CanReturn() bool { return s.Due() && s.free > 0 }

// CanCredit reports whether a credit may be sent.
func (s *slots) CanCredit() bool { return s.free > SlotsReserve && !s.Due() }

// CanRecord reports whether a record may be sent. Its place is free when the message has
// been returned that used it before.
func (s *slots) CanRecord() bool { return s.CanCredit() && s.hasPlace() }

func (s *slots) hasPlace() bool { return s.pending < s.places }

// CanData reports whether a data message of stream id may be sent.
func (s *slots) CanData(id ID) bool {
	return s.forData() && (s.free > s.depth/2 || int(s.streams.At(id)) < s.share())
}

// forData reports whether there is a slot for a data message of a stream that has none under way.
func (s *slots) forData() bool { return s.free > SlotsReserve+ControlReserve && !s.Due() }

// share is what a stream may have under way when slots are few.
func (s *slots) share() int { return max(min(s.depth/8, turnSlots), 2) }

// send uses up a slot, and has unmarked be 0 if the message is to be marked as solicited, which wakes a
// peer that sleeps. Those are records, returns and credits, the last message of a burst, one after
// which its sender has to wait for the peer, one of much data, all while at most half of the slots are
// free, and otherwise one for each eighth of the slots.
func (s *slots) send(u use, solicited bool) {
	if s.free == 0 {
		panic("lane: a message without a slot") // a bug of this package, not of a peer
	}
	at := s.head + s.uses
	if at >= s.depth {
		at -= s.depth
	}
	last := at - 1
	if last < 0 {
		last = s.depth - 1
	}
	if s.uses > 0 && s.used[last].use == u {
		s.used[last].n++
	} else {
		s.used[at] = usage{u, 1}
		s.uses++
	}
	s.free--
	if u.record {
		s.pending++
	}
	*s.streams.ref(u.stream)++
	if s.unmarked++; solicited || s.free <= s.depth/2 || s.unmarked >= s.depth/8 {
		s.unmarked = 0
	}
}

// Data uses up a slot for a data message of stream id, which CanData has allowed, and reports
// whether it is to be marked as solicited, as wake asks for: that the peer has to be woken in any case.
func (s *slots) Data(id ID, wake bool) bool {
	s.send(use{stream: id}, wake)
	if !wake && !s.CanData(id) {
		s.unmarked = 0
	}
	return s.unmarked == 0
}

// Credit uses up a slot for a credit.
func (s *slots) Credit() { s.send(use{}, true) }

// Record uses up a slot and a place for a record.
func (s *slots) Record() { s.send(use{record: true}, true) }

// Return uses up a slot for a return, and returns how many receives that gives back.
func (s *slots) Return() int {
	n := min(s.posted, immLowMask)
	s.arrived -= n
	s.posted -= n
	s.send(use{}, true)
	return n
}

// Returned takes in a return of n receives by the peer. It gives them back to the streams
// and records that used them up, in the order of their messages. An error has RuleReturn.
func (s *slots) Returned(n int) error {
	if n > s.depth-s.free || n <= 0 {
		return violation(RuleReturn, 0, uint64(n), uint64(s.depth-s.free))
	}
	for n > 0 {
		u := &s.used[s.head]
		k := min(n, int(u.n))
		s.free += k
		*s.streams.ref(u.stream) -= uint16(k)
		if u.record {
			s.pending -= uint32(k)
		}
		n -= k
		if u.n -= uint16(k); u.n > 0 {
			break
		}
		s.uses--
		if s.head++; s.head == s.depth {
			s.head = 0
		}
	}
	return nil
}

// Arrived takes in a message of any type. An error has RuleDepth.
func (s *slots) Arrived() error {
	if s.arrived == s.own {
		return s.tooMany()
	}
	s.arrived++
	return nil
}

// tooMany is kept out of line, as violation is.
//
//go:noinline
func (s *slots) tooMany() error {
	return violation(RuleDepth, 0, uint64(s.arrived)+1, uint64(s.own))
}

// Reposted records that n receives were posted again. Their messages must have been given to
// Arrived, and copied if they were records. The error matches ring.ErrConfig.
func (s *slots) Reposted(n int) error {
	if n < 0 || n > s.arrived-s.posted {
		return misuse("%d receives posted again of %d", n, s.arrived-s.posted)
	}
	s.posted += n
	return nil
}
