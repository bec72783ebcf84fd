package lane

// A Span is a piece of a ring.
type Span struct {
	Ring Ring
	Off  uint32 // in bytes from the beginning of the ring
	Len  uint32 // in bytes
}

// A Sender is the writer's view of the peer's ring of a stream.
//
// Bytes fill the ring from its beginning on, and from there again when its end is reached; no
// message goes past the end. A credit says how many granules of the stream were consumed, in the
// order of its bytes, whatever ring they lay in.
//
// # Relocation
//
// The peer may offer another ring. The sender moves to it as soon as it may send a record, also if
// it has no data: MOVED is in order with the data, so both ends know to the byte where one ring
// ends and the other begins. It never writes to the old ring again, and all of the new one is free.
// The peer keeps the old ring until its application has read it. So rings grow and shrink.
type Sender struct {
	ring     Ring
	offered  Ring   // Size 0: none
	start    uint64 // position in the stream of the ring's first byte
	sent     uint64
	credited uint64 // a multiple of Granule; may lag behind start after a move
}

// newSender returns the Sender for the ring that the peer announced.
func newSender(r Ring) Sender { return Sender{ring: r} }

// Free returns how many more bytes fit the ring.
func (s *Sender) Free() int {
	return int(uint64(s.ring.Size) - (s.sent - max(s.credited, s.start)))
}

// Next returns where the next bytes go, at most n. Its Len is 0 if there is no room, until a credit
// or a move.
func (s *Sender) Next(n int) Span {
	off := uint32((s.sent - s.start) & uint64(s.ring.Size-1))
	n = min(n, s.Free(), int(s.ring.Size-off), MaxMessage)
	return Span{Ring: s.ring, Off: off, Len: uint32(max(n, 0))}
}

// wrote records that the bytes of p, as Next returned it, are being sent.
func (s *Sender) wrote(p Span) { s.sent += uint64(p.Len) }

// credit takes in a credit. An error has RuleCredit.
func (s *Sender) credit(granules uint32) error {
	if room := (s.sent - s.credited) / Granule; uint64(granules) > room {
		return violation(RuleCredit, 0, uint64(granules), room)
	}
	s.credited += uint64(granules) * Granule
	return nil
}

// offer takes in a ring that the peer offers. An error has RuleOffer.
func (s *Sender) offer(r Ring) error {
	if s.offered.Size != 0 {
		return violation(RuleOffer, 0, uint64(r.Size), 0)
	}
	s.offered = r
	return nil
}

// move goes on in the ring that was offered. MOVED tells the peer, before any more data.
func (s *Sender) move() {
	s.ring, s.offered, s.start = s.offered, Ring{}, s.sent
}

// Ring returns the ring that the next byte goes to.
func (s *Sender) Ring() Ring { return s.ring }

// SentBytes returns how many bytes were sent in total.
func (s *Sender) SentBytes() uint64 { return s.sent }
