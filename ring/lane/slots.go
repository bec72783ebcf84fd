package lane

const (
	// MinDepth and MaxDepth bound the receives that an end keeps posted for its lane.
	MinDepth = 16
	MaxDepth = 32768
	// SlotsReserve is the number of the peer's receives that only a return of slots takes.
	SlotsReserve = 4
	// ControlReserve is the number beyond it that data may not take either, so that records
	// and credits get through a flood of data.
	ControlReserve = 4
	// MinPlaces and MaxPlaces bound the records that the ring of records holds, which are a
	// power of two, and at least a quarter of the receives of either end: see Slots.
	MinPlaces = 4
	MaxPlaces = 4096
)

// Slots counts the receives of a lane, for one end: those at the peer, which its messages
// use up, and its own, which it returns to the peer as it posts them again.
//
// Receives are posted again when a message is reaped, whether or not its bytes are read,
// at once or up to a quarter of them together. A return of slots is due when a quarter of
// the own receives, T of N, is owed, and goes before everything else.
//
// # Why a return finds a slot
//
// Returns use up receives as well, and of two ends without slots neither could free the
// other. So the last SlotsReserve slots are for returns alone, and these suffice. Let A
// send its first return out of the reserve; it is then up to date, and at most N-4
// messages of B are under way that are no returns. To reap that return, B reaps all that
// A sent before it, which is N-4 messages at least and more than T: so B owes A a return,
// which goes before all else that B sends later. Until it arrives, A reaps at most N-4
// messages and owes for them at most 3 returns more, as N-4 is less than 4T. That is four
// in all. And two ends that return slots for nothing but returns fall silent, since one
// return answers T messages.
//
// # Why a record finds a place
//
// A place is free again when its message is returned, and a peer that owes less than T
// returns nothing. So there are T places at least: of two ends that have nothing under way
// and owe nothing that is due, either may send a record.
//
// # Shares
//
// A stream has a share, an eighth of the slots. While more than half of all slots are free
// it may go beyond it, so that a stream alone has half of them; else a flood that the peer
// does not reap cannot stop its neighbours. As the peer owes less than T when it owes
// nothing that is due, more than half of the slots are free then, and no stream waits for
// ever behind its own share.
type Slots struct {
	depth int     // receives at the peer
	free  int     // of them, not used up
	used  []usage // by message, from head on
	head  int

	own      int // receives of this end
	arrived  int // messages that came, less those returned
	posted   int // of arrived, how many receives are posted again
	places   uint32
	pending  uint32 // records sent whose messages are not returned
	unmarked int    // messages since the last solicited one
	streams  []uint16
}

// usage is what a message used up beside a receive.
type usage struct {
	stream ID   // whose share
	record bool // a place in the ring of records
}

// NewSlots returns the accounting of an end that has own receives posted and whose peer has
// depth, with places for records. Streams have the ids 1 to streams. The error matches
// ring.ErrConfig.
func NewSlots(own, depth, places int, streams ID) (*Slots, error) {
	switch {
	case own < MinDepth || own > MaxDepth || depth < MinDepth || depth > MaxDepth:
		return nil, misuse("receives %d and %d are not from %d to %d", own, depth, MinDepth, MaxDepth)
	case places < MinPlaces || places > MaxPlaces || places&(places-1) != 0:
		return nil, misuse("%d places for records are not a power of two from %d to %d", places, MinPlaces, MaxPlaces)
	case places < max(own, depth)/4:
		return nil, misuse("%d places for records are fewer than a quarter of %d and %d receives", places, own, depth)
	case streams == 0 || streams > MaxStream:
		return nil, misuse("%d streams are not from 1 to %d", streams, MaxStream)
	}
	return &Slots{
		depth: depth, free: depth, used: make([]usage, depth),
		own: own, places: uint32(places), streams: make([]uint16, streams+1),
	}, nil
}

// Free returns how many of the peer's receives are not used up.
func (s *Slots) Free() int { return s.free }

// Owed returns how many receives were posted again and not returned.
func (s *Slots) Owed() int { return s.posted }

// Due reports whether a return has to be sent, before anything else.
func (s *Slots) Due() bool { return s.posted >= s.own/4 }

// CanReturn reports whether a return is due and may be sent.
func (s *Slots) CanReturn() bool { return s.Due() && s.free > 0 }

// CanCredit reports whether a credit may be sent.
func (s *Slots) CanCredit() bool { return s.free > SlotsReserve && !s.Due() }

// CanRecord reports whether a record may be sent. Its place is free when the message has
// been returned that used it before.
func (s *Slots) CanRecord() bool { return s.CanCredit() && s.hasPlace() }

func (s *Slots) hasPlace() bool { return s.pending < s.places }

// CanData reports whether a data message of stream id may be sent.
func (s *Slots) CanData(id ID) bool {
	return s.free > SlotsReserve+ControlReserve && !s.Due() &&
		(s.free > s.depth/2 || int(s.streams[id]) < s.share())
}

// share is what a stream may have under way when slots are few.
func (s *Slots) share() int { return max(s.depth/8, 2) }

// send uses up a slot, and reports whether the message is to be marked as solicited, which
// wakes a peer that sleeps: records, returns and credits, what is last of a burst, a
// message after which its sender has to wait for the peer, every message while fewer than
// half of the slots are free, and one in an eighth of them.
func (s *Slots) send(u usage, solicited bool) bool {
	if s.free == 0 {
		panic("lane: a message without a slot") // a bug of this package, not of a peer
	}
	at := s.head + s.depth - s.free
	if at >= s.depth {
		at -= s.depth
	}
	s.used[at] = u
	s.free--
	if u.record {
		s.pending++
	}
	s.streams[u.stream]++
	if s.unmarked++; solicited || s.free <= s.depth/2 || s.unmarked >= s.depth/8 {
		s.unmarked = 0
		return true
	}
	return false
}

// Data uses up a slot for a data message of stream id, which CanData has allowed, and
// reports whether it is solicited. Last says that no data of the stream follows soon.
func (s *Slots) Data(id ID, last bool) bool {
	s.send(usage{stream: id}, last)
	if last || !s.CanData(id) {
		s.unmarked = 0
		return true
	}
	return s.unmarked == 0
}

// Credit uses up a slot for a credit.
func (s *Slots) Credit() { s.send(usage{}, true) }

// Record uses up a slot and a place for a record.
func (s *Slots) Record() { s.send(usage{record: true}, true) }

// Return uses up a slot for a return, and returns how many receives it gives back.
func (s *Slots) Return() int {
	n := min(s.posted, immLowMask)
	s.arrived -= n
	s.posted -= n
	s.send(usage{}, true)
	return n
}

// Returned takes in a return of n receives by the peer. It gives them back to the streams
// and records that used them up, in the order of their messages. An error has RuleReturn.
func (s *Slots) Returned(n int) error {
	if n > s.depth-s.free || n <= 0 {
		return violation(RuleReturn, 0, uint64(n), uint64(s.depth-s.free))
	}
	for range n {
		u := s.used[s.head]
		if s.head++; s.head == s.depth {
			s.head = 0
		}
		s.free++
		s.streams[u.stream]--
		if u.record {
			s.pending--
		}
	}
	return nil
}

// Arrived takes in a message of any type. An error has RuleDepth.
func (s *Slots) Arrived() error {
	if s.arrived == s.own {
		return violation(RuleDepth, 0, uint64(s.arrived)+1, uint64(s.own))
	}
	s.arrived++
	return nil
}

// Reposted records that n receives were posted again, whose messages were reaped and, if
// they were records, copied. The error matches ring.ErrConfig.
func (s *Slots) Reposted(n int) error {
	if n < 0 || n > s.arrived-s.posted {
		return misuse("%d receives posted again of %d", n, s.arrived-s.posted)
	}
	s.posted += n
	return nil
}
