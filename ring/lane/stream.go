package lane

import "fmt"

// A State is that of a stream at one end.
type State uint8

// The states, in their order.
const (
	// StatePlace: the id was granted, and no stream has it.
	StatePlace State = iota
	// StateOpening: OPEN was not answered. The dialer may send what fits the ring of the
	// place.
	StateOpening
	// StateOpen: both directions are.
	StateOpen
	// StateHalfClosed: one end has sent FIN, or both have.
	StateHalfClosed
	// StateClosing: one end has sent CLOSE or RESET, and the other has not yet.
	StateClosing
	// StateClosed: both have. Neither sends anything but RELEASE, after which the id may be
	// granted again.
	StateClosed
)

// String returns the state's name.
func (s State) String() string {
	if s > StateClosed {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return [...]string{"place", "opening", "open", "half-closed", "closing", "closed"}[s]
}

// What an end has to send of a stream, in the order in which it is sent.
const (
	todoOpen = 1 << iota
	todoAccepted
	todoRefused
	todoRing
	todoMoved
	todoFIN
	todoClose
	todoReset
	todoRelease
)

// A Stream is one end of a stream: the Sender to the peer's ring, the Receiver of the own
// one, and how far it has ended. It is made and driven by its Lane.
type Stream struct {
	id     ID
	number uint32 // of its OPEN among the opens of the lane
	port   uint16
	own    uint16 // the port that came with the place
	tx     Sender
	rx     Receiver
	sums   *sums // nil without checksums

	placed  bool // the place was told
	opened  bool // OPEN was sent or has arrived
	decided bool // ACCEPTED or REFUSED was sent or has arrived
	finSent bool
	finGot  bool
	endSent bool // CLOSE, RESET or REFUSED
	endGot  bool
	refused bool
	ignored bool // opened above what GOAWAY serves
	drops   bool // nobody reads any more: what arrives is taken in and forgotten
	broken  bool // ended by a reset of either end

	todo    uint16
	code    Code // of REFUSED or RESET
	queued  bool // in the lane's queue of records
	credits bool // in the lane's queue of credits
	waits   bool // Data was refused since the last EventWritable
	listed  bool // among those that wait for slots
	told    bool // among the arrivals
}

// ID returns the id. It is the stream's own until EventReleased, or RELEASE is sent.
func (s *Stream) ID() ID { return s.id }

// Port returns the port of the stream: that of its place, or one that the dialer has bound.
func (s *Stream) Port() uint16 { return s.port }

// Receiver returns the rings of this end. Their bytes may be read when the stream has long
// been released.
func (s *Stream) Receiver() *Receiver { return &s.rx }

// Sender returns what this end knows of the peer's ring.
func (s *Stream) Sender() *Sender { return &s.tx }

// Free returns how many bytes the peer's ring has room for.
func (s *Stream) Free() int { return s.tx.Free() }

// Reset reports whether the stream was broken off by either end.
func (s *Stream) Reset() bool { return s.broken }

// Ended reports whether all of the peer's bytes have arrived: its end of file comes after
// those buffered.
func (s *Stream) Ended() bool { return s.finGot || s.endGot }

// Quiet reports whether nothing of the peer is under way to the rings of this end any more,
// so that they may be given back.
func (s *Stream) Quiet() bool { return s.endGot }

// Unsaid reports whether CLOSE or RESET of this end waits to be sent.
func (s *Stream) Unsaid() bool { return s.todo&(todoClose|todoReset) != 0 }

// State returns how far the stream is.
func (s *Stream) State() State {
	switch {
	case s.endSent && s.endGot:
		return StateClosed
	case s.endSent || s.endGot:
		return StateClosing
	case s.finSent || s.finGot:
		return StateHalfClosed
	case s.decided:
		return StateOpen
	case s.opened || s.todo&todoOpen != 0:
		return StateOpening
	}
	return StatePlace
}

// sends reports whether the application may still hand bytes in.
func (s *Stream) sends() bool {
	return s.todo&(todoOpen|todoAccepted|todoRefused|todoFIN|todoClose|todoReset|todoRelease) == 0 &&
		s.opened && !s.finSent && !s.endSent && !s.endGot
}

// finished reports whether the application can send no more.
func (s *Stream) finished() bool {
	return s.finSent || s.endSent || s.endGot || s.todo&(todoRefused|todoFIN|todoClose|todoReset|todoRelease) != 0
}
