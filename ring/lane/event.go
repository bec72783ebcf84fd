package lane

// An EventKind says what has happened.
type EventKind uint8

// The kinds of event. Each wait for one of a lane's streams ends by one of them.
const (
	// EventReadable: there are bytes to read, or the end of file.
	EventReadable EventKind = iota + 1
	// EventWritable: Data may be asked for again.
	EventWritable
	// EventOpened: a client opened the stream. Accept or Refuse has to answer.
	EventOpened
	// EventAccepted: the stream stands. What was kept of it need not be any more.
	EventAccepted
	// EventRefused: the stream was refused, for Code.
	EventRefused
	// EventClosed: the peer has closed the stream. Writes fail, what arrived can be read.
	EventClosed
	// EventReset: the peer has broken the stream off, for Code.
	EventReset
	// EventBroken: the peer broke a rule of the stream, Err, and this end has reset it.
	EventBroken
	// EventMoved: the peer writes to the ring offered. See Receiver.Reclaim.
	EventMoved
	// EventReleased: the id, Stream.ID, may be granted again.
	EventReleased
	// EventRedial: the listener has not seen the stream. It is safe to dial again.
	EventRedial
	// EventPlaces: there are places to open streams with.
	EventPlaces
	// EventWant: Count dials more of the peer wait for a place.
	EventWant
	// EventGoAway: GOAWAY came, of Stage.
	EventGoAway
	// EventPong: the peer has answered Ping.
	EventPong
	// EventAborted: the peer ends the lane, since this end broke a rule, which is Err.
	EventAborted
)

// An Event tells whoever drives a Lane what has become of it.
type Event struct {
	Stream *Stream // nil where it is about the lane
	Err    error
	Count  uint16
	Code   Code
	Kind   EventKind
	Stage  Stage
}

// tell appends an event.
func (l *Lane) tell(e Event) { l.events.push(e) }

// Event returns the next event. It is to be asked after each call of another method until
// there is none; a call adds at most a few, or one for each stream.
func (l *Lane) Event() (Event, bool) {
	if s := l.Readable(); s != nil {
		return Event{Kind: EventReadable, Stream: s}, true
	}
	if l.events.len() == 0 {
		return Event{}, false
	}
	return l.events.pop(), true
}

// Happened reports whether there is an event.
func (l *Lane) Happened() bool { return l.arrivals.some() || l.events.some() }

// Readable takes the next event if that is EventReadable, and returns its stream, else nil. It
// is the event of most messages, and comes before all others.
func (l *Lane) Readable() *Stream {
	if !l.arrivals.some() {
		return nil
	}
	s := l.arrivals.pop()
	s.told = false
	return s
}

// readable tells that there is something to read. It is told once for all that arrives before
// the event is taken.
func (l *Lane) readable(s *Stream) {
	if !s.told {
		s.told = true
		l.arrivals.push(s)
	}
}

// writable wakes a writer that waits.
func (l *Lane) writable(s *Stream) {
	if s.waits {
		s.waits = false
		l.tell(Event{Kind: EventWritable, Stream: s})
	}
}

// slotsOpened wakes all that wait for slots, in the order in which they came.
func (l *Lane) slotsOpened() {
	for l.waiting.len() > 0 {
		s := l.waiting.pop()
		s.listed = false
		l.writable(s)
	}
}
