package ring

// Span is a contiguous piece of a ring, relative to the ring's first byte.
type Span struct {
	Off, Len uint32
}

// Grant is one data message that a Sender may send: N bytes, of which the first
// Span[0].Len go to Span[0] and the rest to Span[1]. The last span is the one to
// write with the immediate.
type Grant struct {
	N     int     // bytes; 0 when nothing may be sent
	Span  [2]Span // where they go
	Spans int     // how many of Span are used: 0, 1, or 2 where the ring wraps
	Grown bool    // goes into the doorbell
}

// Doorbell returns what announces the message.
func (g Grant) Doorbell() Doorbell {
	return Doorbell{Kind: KindData, Len: uint32(g.N), Grown: g.Grown}
}

// Sender is the writer's view of its peer's ring.
//
// Between Next and Sent, and between Sent and the post of the message, Update may
// run but no other Next. Sent and SentControl must come before the peer can answer
// the message, that is before it is posted: a credit for what a Sender does not
// know to be sent is a violation.
type Sender struct {
	// Absolute counts of bytes. Only differences are meaningful, so they may wrap.
	sent     uint64
	consumed uint64 // as of the last credit

	// Totals of messages and of the peer's receive WRs, compared as serial numbers.
	messages uint32
	posted   uint32 // as of the last credit

	// pos is where the next byte goes. It stays at size when it gets there, since
	// only the next message decides between wrapping and growing. The bytes in
	// flight are those before pos, and where they are more than pos, the rest of
	// them ends at size.
	pos uint32

	size    uint32 // where the ring wraps
	granted uint32 // size of the last credit; above size while a growth is pending
	maxSize uint32
	depth   uint32
}

// NewSender returns the Sender for a ring that the peer announced: its size at
// first, the size it may grow to, and the number of receive WRs posted at first.
// The error matches ErrConfig.
func NewSender(size, maxSize, depth uint32) (*Sender, error) {
	return newSender(size, maxSize, depth, 0, 0)
}

// newSender starts the counts at any value, for the tests of their wrapping.
func newSender(size, maxSize, depth uint32, bytes uint64, messages uint32) (*Sender, error) {
	if err := checkGeometry(size, maxSize, depth); err != nil {
		return nil, err
	}
	return &Sender{
		sent: bytes, consumed: bytes,
		messages: messages, posted: messages + depth,
		size: size, granted: size, maxSize: maxSize, depth: depth,
	}, nil
}

// Free returns how many bytes may be in flight beyond those that are. A message
// may still be shorter: see Next.
func (s *Sender) Free() int {
	used := s.sent - s.consumed
	if used > uint64(s.pos) { // the bytes in flight wrap, so they end at size
		return int(uint64(s.size) - used)
	}
	return int(uint64(s.granted) - used)
}

// ControlSlots returns how many messages of any kind may be sent now.
//
// The last ControlReserve of them are for credits that are due, for FIN and for
// Close, once each; Receiver says why they suffice. A Reset takes one if there is
// one, and is otherwise not worth waiting for. Everything else is to be sent only
// when Slots is above zero: a KeepAlive, which traffic makes superfluous, and a
// credit ahead of time.
func (s *Sender) ControlSlots() int {
	return max(int(int32(s.posted-s.messages)), 0)
}

// Slots returns how many data messages may be sent now.
func (s *Sender) Slots() int {
	return max(int(int32(s.posted-s.messages))-ControlReserve, 0)
}

// Next returns the largest message of at most n bytes that may be sent now. It
// changes nothing: Sent says that the message is being sent. N is 0 when either
// window is shut, which a coming credit ends.
func (s *Sender) Next(n int) Grant {
	n = min(n, s.Free())
	if n <= 0 || s.Slots() == 0 {
		return Grant{}
	}
	off, end, grown := s.pos, s.size, false
	if s.granted != s.size {
		// A growth is pending. The message stops at the old end, where the next one
		// can start the new area.
		if off == end {
			grown, end = true, s.granted
		}
		n = min(n, int(end-off))
	} else if off == end {
		off = 0
	}
	if rest := n - int(end-off); rest > 0 {
		return Grant{N: n, Span: [2]Span{{off, end - off}, {0, uint32(rest)}}, Spans: 2}
	}
	return Grant{N: n, Span: [2]Span{{off, uint32(n)}}, Spans: 1, Grown: grown}
}

// Sent records that the message g, as Next returned it, is being sent.
func (s *Sender) Sent(g Grant) {
	if g.N <= 0 {
		return
	}
	s.pos = g.Span[0].Off + g.Span[0].Len
	if g.Spans == 2 {
		s.pos = g.Span[1].Len
	}
	if g.Grown {
		s.size = s.granted
	}
	s.sent += uint64(g.N)
	s.messages++
}

// SentControl records that a message without data is being sent.
func (s *Sender) SentControl() { s.messages++ }

// Update takes in a credit of the peer. It returns an error matching ErrProtocol,
// and changes nothing, if the credit contradicts an earlier one or what was sent.
func (s *Sender) Update(c Credit) error {
	// Unsigned, a step backwards is a huge step forwards, here and below.
	if c.Consumed-s.consumed > s.sent-s.consumed {
		return s.refuseConsumed(c)
	}
	if open := int64(int32(s.posted - s.messages)); open+int64(c.Reposted-s.posted) > int64(s.depth) {
		return s.refuseReposted(c)
	}
	if c.Size != s.granted {
		if err := s.checkSize(c.Size); err != nil {
			return err
		}
	}
	s.consumed, s.posted, s.granted = c.Consumed, c.Reposted, c.Size
	return nil
}

// checkSize judges a size that is not the one granted before.
func (s *Sender) checkSize(size uint32) error {
	switch {
	case !validSize(size):
		return violation("credit with a size that no ring has", uint64(size), MaxSize)
	case size < s.granted:
		return violation("credit shrinks the ring", uint64(size), uint64(s.granted))
	case size > s.maxSize:
		return violation("credit grows the ring beyond its maximum", uint64(size), uint64(s.maxSize))
	case s.granted != s.size:
		return violation("credit grows the ring again before the last growth was taken up", uint64(size), uint64(s.granted))
	}
	return nil
}

func (s *Sender) refuseConsumed(c Credit) error {
	if int64(c.Consumed-s.consumed) < 0 {
		return violation("credit takes back consumed bytes", c.Consumed, s.consumed)
	}
	return violation("credit for bytes that were not sent", c.Consumed, s.sent)
}

func (s *Sender) refuseReposted(c Credit) error {
	if int32(c.Reposted-s.posted) < 0 {
		return violation("credit takes back receives", uint64(c.Reposted), uint64(s.posted))
	}
	return violation("credit for more receives than the queue holds", uint64(c.Reposted), uint64(s.messages+s.depth))
}

// Size returns the ring's size as last granted.
func (s *Sender) Size() uint32 { return s.granted }

// InFlight returns how many bytes were sent and not reported as consumed.
func (s *Sender) InFlight() uint64 { return s.sent - s.consumed }

// SentBytes returns how many bytes were sent in total.
func (s *Sender) SentBytes() uint64 { return s.sent }
