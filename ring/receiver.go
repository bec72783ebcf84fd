package ring

// Receiver is the owner's view of its own ring.
//
// # Why a blocked sender is always owed a credit
//
// A sender blocks for want of bytes or of slots. Let everything in flight arrive,
// including the credits already sent, which by their doorbell wake whoever sleeps:
// the sender now knows exactly what was reported.
//
//   - Bytes: it knows a window of size or more and has filled it beyond the half:
//     received - reported >= size/2. When the application has read everything,
//     consumed = received, so consumed - reported >= size/2 >= size/10, and
//     CreditDue holds. This covers a sender that waits for any amount of room up
//     to half the ring. Size is the one in use, not the one granted: a sender
//     whose bytes wrap cannot use a growth yet.
//   - Slots: all but ControlReserve of depth receives are taken, and receives are
//     posted again when reaped, whether or not the application reads, all but
//     MaxHeld-1 of them. So reposted - reported >= depth - ControlReserve - MaxHeld >=
//     depth/4, since depth >= MinDepth.
//
// # Why a credit always finds a slot
//
// Let an end send as many credits as it can without hearing what the peer reaped.
// What the peer may send is then fixed by a credit already sent: at most a ring of
// bytes and depth messages. Credits due by bytes are at least size/10 apart and end
// when less than size/2 is left to report: six, and where a growth is taken up on
// the way, five more. Those due by receives are depth/4 apart: three, since a
// fourth takes the peer's own control messages, whose credits open slots. With
// FIN and Close that makes sixteen, which is ControlReserve. Once the peer has
// reaped one of these it can send more only after it has reported all but depth/4
// of what it reaped, because credits go before data; that opens more slots than it
// can cost.
type Receiver struct {
	// Absolute counts of bytes. Only differences are meaningful, so they may wrap.
	received uint64
	consumed uint64
	reported uint64 // consumed as of the last credit

	// Totals of receive WRs posted, compared as serial numbers.
	posted         uint32
	reportedPosted uint32

	// pos is where the last message ended; it stays at size when it gets there, as
	// the sender's does. The unread bytes are those before pos, and where they are
	// more than pos, the rest of them ends at size.
	pos uint32

	size         uint32 // where the ring wraps
	granted      uint32 // above size while a growth is under way
	reportedSize uint32
	maxSize      uint32
	depth        uint32
}

// NewReceiver returns the Receiver for a ring of size bytes that may grow to
// maxSize, with depth receive WRs posted. The error matches ErrConfig.
func NewReceiver(size, maxSize, depth uint32) (*Receiver, error) {
	return newReceiver(size, maxSize, depth, 0, 0)
}

// newReceiver starts the counts at any value, for the tests of their wrapping.
func newReceiver(size, maxSize, depth uint32, bytes uint64, messages uint32) (*Receiver, error) {
	if err := checkGeometry(size, maxSize, depth); err != nil {
		return nil, err
	}
	return &Receiver{
		received: bytes, consumed: bytes, reported: bytes,
		posted: messages + depth, reportedPosted: messages + depth,
		size: size, granted: size, reportedSize: size, maxSize: maxSize, depth: depth,
	}, nil
}

// Data takes in a data message that has arrived. It returns an error matching
// ErrProtocol, and changes nothing, if there was no room for it where it went.
//
// Room is judged by what was consumed, not by what was reported: a credit may be
// answered before CreditSent is called, and a peer that guesses it right
// overwrites nothing unread.
func (r *Receiver) Data(d Doorbell) error {
	if d.Grown || d.Kind != KindData || uint64(d.Len)-1 >= uint64(r.size)-(r.received-r.consumed) {
		return r.unusual(d)
	}
	r.received += uint64(d.Len)
	if r.pos += d.Len; r.pos > r.size {
		r.pos -= r.size
	}
	return nil
}

// unusual takes in the first message after a growth, and refuses what is wrong.
func (r *Receiver) unusual(d Doorbell) error {
	switch {
	case d.Kind != KindData:
		return violation("data expected, other kind of doorbell", uint64(d.Kind), uint64(KindData))
	case d.Len == 0:
		return violation("data message of length zero", 0, uint64(r.size))
	case !d.Grown:
		return violation("data beyond the free space of the ring", uint64(d.Len), uint64(r.size)-(r.received-r.consumed))
	case r.granted == r.size:
		return violation("ring grown without a grant", uint64(d.Len), 0)
	case r.pos != r.size:
		return violation("ring grown before its old end", uint64(r.pos), uint64(r.size))
	case d.Len > r.granted-r.size:
		// The sender knew of the growth, so it also knew not to wrap in this message.
		return violation("data straddles the end of a ring just grown", uint64(d.Len), uint64(r.granted-r.size))
	}
	r.received += uint64(d.Len)
	r.pos += d.Len
	r.size = r.granted
	return nil
}

// Buffered returns how many bytes can be read.
func (r *Receiver) Buffered() int { return int(r.received - r.consumed) }

// Readable returns where the unread bytes lie, in order: a, then b after the wrap.
func (r *Receiver) Readable() (a, b Span) {
	n := uint32(r.received - r.consumed)
	if n <= r.pos {
		return Span{r.pos - n, n}, b
	}
	return Span{r.size + r.pos - n, n - r.pos}, Span{0, r.pos}
}

// Consume gives the first n unread bytes back to the sender. The error matches
// ErrConfig, and nothing changes, if n is negative or more than Buffered.
func (r *Receiver) Consume(n int) error {
	if uint64(n) > r.received-r.consumed { // a negative n is huge
		return r.overread(n)
	}
	r.consumed += uint64(n)
	return nil
}

//go:noinline
func (r *Receiver) overread(n int) error {
	return misuse("cannot consume %d bytes of %d buffered", n, r.received-r.consumed)
}

// Reposted records that n receive WRs were reaped and posted again. It is to be
// called when messages of any kind are reaped, or MaxHeld of them, not when their
// bytes are read.
func (r *Receiver) Reposted(n uint32) { r.posted += n }

// CreditDue reports whether a credit has to be sent: when there is a control slot,
// which there is as things go, and before any data. A credit that is pending but
// not due may be sent too, but takes a slot as data does.
func (r *Receiver) CreditDue() bool {
	return r.posted-r.reportedPosted >= r.depth/4 ||
		r.received-r.reported >= uint64(r.size/2) && r.consumed-r.reported >= uint64(r.size/10)
}

// CreditPending reports whether there is anything that no credit has told yet.
func (r *Receiver) CreditPending() bool {
	return r.Credit() != Credit{r.reported, r.reportedPosted, r.reportedSize}
}

// Credit returns what there is to tell now.
func (r *Receiver) Credit() Credit {
	return Credit{Consumed: r.consumed, Reposted: r.posted, Size: r.granted}
}

// CreditSent records that c, as Credit returned it, is being sent. Credits are
// recorded in the order in which they are sent.
func (r *Receiver) CreditSent(c Credit) {
	r.reported, r.reportedPosted, r.reportedSize = c.Consumed, c.Reposted, c.Size
}

// Grow grants a ring of newSize bytes, a power of two above Size and up to the
// maximum. The memory must be there before the call. The grant travels with the
// next credit; it does not make one due, since a small ring owes credits often.
//
// The error is ErrGrowing while the peer has not taken up an earlier growth, and
// matches ErrConfig for a size that is not allowed.
func (r *Receiver) Grow(newSize uint32) error {
	switch {
	case !validSize(newSize) || newSize <= r.granted || newSize > r.maxSize:
		return misuse("growth to %d is not to a power of two above %d and up to %d", newSize, r.granted, r.maxSize)
	case r.Growing():
		return ErrGrowing
	}
	r.granted = newSize
	return nil
}

// Growing reports whether a growth was granted that the peer has not taken up.
func (r *Receiver) Growing() bool { return r.granted != r.size }

// Size returns the ring's size as granted. The peer may not know it yet.
func (r *Receiver) Size() uint32 { return r.granted }

// ReceivedBytes returns how many bytes arrived in total.
func (r *Receiver) ReceivedBytes() uint64 { return r.received }

// ConsumedBytes returns how many bytes were consumed in total.
func (r *Receiver) ConsumedBytes() uint64 { return r.consumed }
