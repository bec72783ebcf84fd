package lane

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

// A Stream is one end of a stream: a Sender for the peer's ring, a Receiver for the own one, and
// whether either direction has ended. The methods of its Lane make and change it.
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
	ignored bool // opened after what GOAWAY serves
	drops   bool // nobody reads any more: what arrives is discarded
	broken  bool // ended by a reset of either end

	todo    uint16
	code    Code // of REFUSED or RESET
	queued  bool // in the lane's queue of records
	credits bool // in the lane's queue of credits
	waits   bool // Data was refused since the last EventWritable
	listed  bool // among those that wait for slots
	turn    turn // of those
	told    bool // among the arrivals
	ahead   bool // bytes are being written that Data has not announced: see Lane.Reserve
	ordered bool // the peer's end arrived behind all its bytes
}

// ID returns the id. It may be another stream's after EventReleased at the listener and, at the
// dialer, once both ends have ended or RELEASE was sent.
func (s *Stream) ID() ID { return s.id }

// Port returns the port of the dialer's end: that of its place, or one that the dialer has bound.
func (s *Stream) Port() uint16 { return s.port }

// Receiver returns the rings of this end. Their bytes may be read also after the stream was
// released.
func (s *Stream) Receiver() *Receiver { return &s.rx }

// Sender returns what this end knows of the peer's ring.
func (s *Stream) Sender() *Sender { return &s.tx }

// Free returns how many more bytes fit the peer's ring.
func (s *Stream) Free() int { return s.tx.Free() }

// Reset reports whether either end has reset the stream.
func (s *Stream) Reset() bool { return s.broken }

// Ended reports whether the peer sends no more: the end of file follows the bytes that are
// buffered.
func (s *Stream) Ended() bool { return s.finGot || s.endGot }

// EndedInOrder reports whether the peer has ended what it sends by FIN or CLOSE, and all that it sent
// before has arrived. A RESET that follows does not change that.
func (s *Stream) EndedInOrder() bool { return s.ordered }

// Quiet reports whether the peer writes to the rings of this end no more, so that their memory may
// be used for something else.
func (s *Stream) Quiet() bool { return s.endGot }

// EndUnsent reports whether CLOSE or RESET of this end was not sent yet.
func (s *Stream) EndUnsent() bool { return s.todo&(todoClose|todoReset) != 0 }

// receives reports whether the peer may send bytes that will be read. Where this end has sent its end, or ignores
// the stream, drops or endGot is set as well.
func (s *Stream) receives() bool { return !s.finGot && !s.endGot && !s.drops }

// sends reports whether bytes of the application may be sent.
func (s *Stream) sends() bool {
	return s.todo&(todoAccepted|todoRefused|todoFIN|todoClose|todoReset|todoRelease) == 0 &&
		s.opened && !s.finSent && !s.endSent && !s.endGot
}

// finished reports whether no more bytes of the application can be sent, ever.
func (s *Stream) finished() bool {
	return s.finSent || s.endSent || s.endGot || s.todo&(todoRefused|todoFIN|todoClose|todoReset|todoRelease) != 0
}
