package lane

import (
	"slices"

	"github.com/rdmanet/go-rdmanet/ring"
)

// MaxRings is the most rings that a stream has at one end: the one that is written to, and those
// that hold unread bytes.
const MaxRings = 8

// A Receiver is the owner's view of the rings of a stream: the one that the peer writes to, and those
// it wrote to before that hold unread bytes.
//
// # Why no sender waits for ever
//
// Let everything under way arrive, and the application read it. A sender that finds no room has
// filled the ring, as far as it knows: the bytes received in this ring, less those whose
// consumption was reported, are the ring's size. That is more than half of it, and all but 63 of
// these bytes can be reported, which is more than a tenth of the smallest ring. So a credit is due.
// The same holds for a sender that waits for up to half of the ring.
type Receiver struct {
	ring    ownRing   // that the peer writes to; Size 0: the peer knows none yet
	older   []ownRing // that hold unread bytes, the oldest first; few streams ever have one
	offered Ring      // Size 0: none

	received uint64
	consumed uint64
	reported uint64 // a multiple of Granule
}

type ownRing struct {
	Ring
	start uint64 // position in the stream of the ring's first byte
}

// newReceiver returns the Receiver for a ring that the peer knows.
func newReceiver(r Ring) Receiver {
	return Receiver{ring: ownRing{Ring: r}}
}

// data takes in n bytes that have arrived. Room is judged by what was consumed, not by what
// was reported: a peer that guesses it right overwrites nothing unread. An error has
// RuleOverflow or RuleStraddle, and nothing has changed then.
func (r *Receiver) data(n uint32) error {
	l := &r.ring
	room := uint64(l.Size) - (r.received - max(r.consumed, l.start))
	end := uint64(l.Size) - (r.received-l.start)&uint64(l.Size-1)
	if uint64(n) > min(room, end) {
		return outside(uint64(n), room, end)
	}
	r.received += uint64(n)
	return nil
}

// outside is why n bytes do not fit.
func outside(n, room, end uint64) error {
	if n > room {
		return violation(RuleOverflow, 0, n, room)
	}
	return violation(RuleStraddle, 0, n, end)
}

// Next returns where the next byte goes that arrives, from the beginning of the ring.
func (r *Receiver) Next() uint32 { return uint32((r.received - r.ring.start) & uint64(r.ring.Size-1)) }

// Buffered returns how many bytes can be read.
func (r *Receiver) Buffered() uint64 { return r.received - r.consumed }

// Readable returns where the first bytes lie that can be read, as many as lie together.
func (r *Receiver) Readable() Span {
	l, end := &r.ring, r.received
	for i := len(r.older) - 1; i >= 0 && l.start > r.consumed; i-- {
		l, end = &r.older[i], l.start
	}
	off := uint32((r.consumed - l.start) & uint64(l.Size-1))
	return Span{Ring: l.Ring, Off: off, Len: uint32(min(end-r.consumed, uint64(l.Size-off)))}
}

// consume gives the first n unread bytes back to the sender. The error matches
// ring.ErrConfig, and nothing changes, if there are fewer.
func (r *Receiver) consume(n int) error {
	if uint64(n) > r.Buffered() { // a negative n is huge
		return r.tooFew(n)
	}
	r.consumed += uint64(n)
	return nil
}

// tooFew is kept out of line, as violation is.
//
//go:noinline
func (r *Receiver) tooFew(n int) error {
	return misuse("cannot consume %d bytes of %d buffered", n, r.Buffered())
}

// pending returns how many consumed granules were not reported by a credit.
func (r *Receiver) pending() uint64 { return (r.consumed - r.reported) / Granule }

// creditDue reports whether a credit has to be sent: half of the ring is used up as far as
// the sender knows, and there is a tenth to tell.
func (r *Receiver) creditDue() bool {
	l := &r.ring
	known := max(r.reported, l.start)
	if r.received-known < uint64(l.Size/2) { // as a rule
		return false
	}
	told := r.reported + r.pending()*Granule
	return told > known && told-known >= uint64(l.Size/10)
}

// creditSent returns how many granules the credit gives that is being sent now. What is
// more than maxGranules is for the next.
func (r *Receiver) creditSent() uint32 {
	n := min(r.pending(), maxGranules)
	r.reported += n * Granule
	return uint32(n)
}

// WantsRing reports whether a larger ring should be offered, and no offer is under way: half of the
// ring holds unread bytes, since the reader is slow, or the sender used three quarters of it before
// a credit came, since the ring is small for its rate.
func (r *Receiver) WantsRing() bool {
	l := &r.ring
	// Seldom is so much used. No more is unread, as only what was consumed is reported.
	return r.received-max(r.reported, l.start) >= uint64(l.Size/2) && r.runsFull()
}

// runsFull is WantsRing of a ring of which the sender has used half.
func (r *Receiver) runsFull() bool {
	l := &r.ring
	unread, ahead := r.received-max(r.consumed, l.start), r.received-max(r.reported, l.start)
	return (unread >= uint64(l.Size/2) || ahead >= uint64(l.Size/4*3)) && l.Size < MaxRing && r.MayOffer()
}

// Full reports whether the sender knows of no more than a tenth of the ring to write to. It may wait for the
// next credit then, and until that comes nothing more arrives.
func (r *Receiver) Full() bool {
	l := &r.ring
	return uint64(l.Size)-(r.received-max(r.reported, l.start)) <= uint64(l.Size/10)
}

// MayOffer reports whether another ring may be offered: the peer has moved to the last, and fewer than MaxRings
// hold unread bytes.
func (r *Receiver) MayOffer() bool { return r.offered.Size == 0 && len(r.older) < MaxRings-1 }

// Rings returns how many rings there are, at most MaxRings: the one that the peer writes to, and those before it that
// hold unread bytes.
func (r *Receiver) Rings() int { return len(r.older) + 1 }

// offer records that a ring is offered to the peer, of any size, which may be smaller. It is
// the peer's to write to from then on. The error is ring.ErrGrowing while the peer has not
// moved to an earlier one, or MaxRings hold unread bytes.
func (r *Receiver) offer(to Ring) error {
	switch {
	case !to.valid(1):
		return misuse("no ring: %+v", to)
	case !r.MayOffer():
		return ring.ErrGrowing
	}
	r.offered = to
	return nil
}

// Offering reports whether a ring was offered that the peer has not moved to.
func (r *Receiver) Offering() bool { return r.offered.Size != 0 }

// moved takes in that the peer's next byte goes to the beginning of the ring offered. An error
// has RuleMove.
func (r *Receiver) moved() error {
	if r.offered.Size == 0 {
		return violation(RuleMove, 0, 0, 0)
	}
	r.older = append(r.older, r.ring)
	r.ring, r.offered = ownRing{r.offered, r.received}, Ring{}
	return nil
}

// afterOldest returns the ring that the peer moved to from the oldest, nil if it is the only one.
func (r *Receiver) afterOldest() *ownRing {
	switch len(r.older) {
	case 0:
		return nil
	case 1:
		return &r.ring
	default:
		return &r.older[1]
	}
}

// Reclaim returns the oldest ring, and reports whether it is needed no more: the peer writes to
// another, and its bytes were consumed. Call it until it reports false.
func (r *Receiver) Reclaim() (Ring, bool) {
	next := r.afterOldest()
	if next == nil || next.start > r.consumed {
		return Ring{}, false
	}
	old := r.older[0].Ring
	if r.older = slices.Delete(r.older, 0, 1); len(r.older) == 0 {
		r.older = nil
	}
	return old, true
}

// Ring returns the ring that the peer writes to.
func (r *Receiver) Ring() Ring { return r.ring.Ring }

// ReceivedBytes returns how many bytes arrived in total.
func (r *Receiver) ReceivedBytes() uint64 { return r.received }

// ConsumedBytes returns how many bytes were consumed in total.
func (r *Receiver) ConsumedBytes() uint64 { return r.consumed }
