package lane

// A Span is a piece of a ring.
type Span struct {
	Ring Ring
	Off  uint32 // from the ring's begin
	Len  uint32
}

// Sender is the writer's view of the ring that a stream has at the peer.
//
// Bytes fill a ring from its begin on, and again from its begin when its end is reached; a
// message ends there at the latest. Credits come as granules of the stream that were
// consumed, in the order of its bytes, so they need not know in which ring a byte lay.
//
// # Relocation
//
// The peer offers another ring. The sender moves as soon as it may send a record, with or
// without anything to say: MOVED is in order with the data, so both ends know to the byte
// where one ring ends and the other begins. It never writes to the old ring again, which
// the peer keeps until its application has read it; the room of the new one is all the
// sender's from the begin. Rings grow so, shrink so, and give memory back so.
type Sender struct {
	ring     Ring
	offered  Ring   // Size 0: none
	start    uint64 // of the stream, the byte at the ring's begin
	sent     uint64
	credited uint64 // a multiple of Granule; may lag behind start after a move
}

// NewSender returns the Sender for the ring that the peer announced.
func NewSender(r Ring) Sender { return Sender{ring: r} }

// Free returns how many bytes may be in the ring beyond those that are.
func (s *Sender) Free() int {
	return int(uint64(s.ring.Size) - (s.sent - max(s.credited, s.start)))
}

// Next returns where the next at most n bytes go. Its Len is 0 if there is no room, which a
// credit or a move ends.
func (s *Sender) Next(n int) Span {
	off := uint32((s.sent - s.start) & uint64(s.ring.Size-1))
	n = min(n, s.Free(), int(s.ring.Size-off), MaxMessage)
	return Span{Ring: s.ring, Off: off, Len: uint32(max(n, 0))}
}

// Sent records that the bytes of p, as Next returned it, are being sent.
func (s *Sender) Sent(p Span) { s.sent += uint64(p.Len) }

// Credit takes in a credit. An error has RuleCredit.
func (s *Sender) Credit(granules uint32) error {
	if room := (s.sent - s.credited) / Granule; uint64(granules) > room {
		return violation(RuleCredit, 0, uint64(granules), room)
	}
	s.credited += uint64(granules) * Granule
	return nil
}

// Offer takes in a ring that the peer offers. An error has RuleOffer.
func (s *Sender) Offer(r Ring) error {
	if s.offered.Size != 0 {
		return violation(RuleOffer, 0, uint64(r.Size), 0)
	}
	s.offered = r
	return nil
}

// Offered reports whether there is a ring to move to.
func (s *Sender) Offered() bool { return s.offered.Size != 0 }

// Move goes on in the ring that was offered, and is told to the peer before any byte.
func (s *Sender) Move() {
	s.ring, s.offered, s.start = s.offered, Ring{}, s.sent
}

// Ring returns the ring that is written to.
func (s *Sender) Ring() Ring { return s.ring }

// SentBytes returns how many bytes were sent in total.
func (s *Sender) SentBytes() uint64 { return s.sent }
