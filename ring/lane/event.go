package lane

// An EventKind is the kind of an Event.
type EventKind uint8

// The kinds of event. Whatever a caller waits for, one of them tells it.
const (
	// EventReadable: there are bytes to read, or the end of file.
	EventReadable EventKind = iota + 1
	// EventWritable: Lane.Data may have room again. Call Lane.PassTurn when that has been looked at.
	EventWritable
	// EventOpened: the dialer opened the stream. Call Lane.Accept or Lane.Refuse.
	EventOpened
	// EventAccepted: the listener accepted the stream. It need not be dialed again.
	EventAccepted
	// EventRefused: the listener refused the stream, for the reason Code.
	EventRefused
	// EventClosed: the peer closed the stream. Writes fail; what arrived can be read.
	EventClosed
	// EventReset: the peer reset the stream, for the reason Code.
	EventReset
	// EventBroken: the peer broke the rule Err of the stream, and this end has reset it.
	EventBroken
	// EventMoved: the peer writes to the ring that was offered. See Receiver.Reclaim.
	EventMoved
	// EventReleased: the id of the stream may be granted again.
	EventReleased
	// EventRedial: the listener took nothing of the stream. It is safe to dial again.
	EventRedial
	// EventPlaces: there are places to open streams with.
	EventPlaces
	// EventWant: Count more dials of the peer wait for a place.
	EventWant
	// EventGoAway: a GOAWAY of Stage came.
	EventGoAway
	// EventAborted: the peer ends the lane, since this end broke the rule Err.
	EventAborted
)

// An Event is news about a lane. Its kind says which fields are set.
type Event struct {
	Stream *Stream // nil for an event about the lane itself
	Err    error
	Count  uint16
	Code   Code
	Kind   EventKind
	Stage  Stage
}

// tell appends an event.
func (l *Lane) tell(e Event) { l.events.push(e) }

// Event returns the next event, and reports whether there is one. Call it until there is none after
// each call of another method. One call adds a few events at most, or one for each stream.
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
func (l *Lane) Happened() bool { return l.arrived != nil || l.events.some() }

// Readable returns the stream of the next event and takes the event, if it is an EventReadable;
// else it returns nil. Those events come before all others.
func (l *Lane) Readable() *Stream {
	if l.arrived == nil {
		return nil
	}
	return l.nextArrival()
}

// nextArrival is kept out of line so that Readable stays inlinable, as violation is.
//
//go:noinline
func (l *Lane) nextArrival() *Stream {
	s := l.arrived
	s.told, l.arrived = false, nil
	if l.arrivals.some() {
		l.arrived = l.arrivals.pop()
	}
	return s
}

// readable adds an EventReadable, one for all that arrives before the event is taken.
func (l *Lane) readable(s *Stream) {
	if s.told {
		return
	}
	if s.told = true; l.arrived == nil {
		l.arrived = s
	} else {
		l.arrivals.push(s)
	}
}

// writable tells a writer that waits.
func (l *Lane) writable(s *Stream) {
	if s.waits {
		s.waits = false
		l.tell(Event{Kind: EventWritable, Stream: s})
	}
}

// A turn is that of a writer which was told of slots.
type turn uint8

const (
	noTurn  turn = iota
	hasTurn      // it has not passed it on
	hadTurn      // it has sent nothing since, and goes before others that wait
)

// turnSlots is how many slots the share of a stream is at most, and for how many that were given back a turn
// begins: what a writer sends in a turn should take longer than to wake it, but who writes less often waits as long
// as all others before it have their turns.
const turnSlots = 64

// slotsOpened begins turns of the writers that wait for slots, of which there are n more. If as many were told
// as there are slots, each would be woken for one message, or find that others have used them up. So one that is
// told has a turn, and sends as much as its share allows; the next is told when it passes the turn on.
//
// None is forgotten: a turn ends only where there is nobody left to tell, or no slot, or a return of this
// end is due first. That begins turns when it is sent, and the peer's next one does, which it owes as more
// than half of its receives are used up.
func (l *Lane) slotsOpened(n int) { l.nextTurns(max(n/turnSlots, 1)) }

// PassTurn has the next of the writers that wait for slots be told, if s was told for some. It has to be
// called after each EventWritable, once the writer of s looks or will not.
func (l *Lane) PassTurn(s *Stream) {
	if s.turn == hasTurn {
		s.turn = hadTurn
		l.nextTurns(1)
	}
}

// nextTurns tells the n that came first, but for those whose share is used up.
func (l *Lane) nextTurns(n int) {
	for all := l.waiting.len(); n > 0 && all > 0 && l.slots.forData(); all-- {
		s := l.waiting.pop()
		switch {
		case !s.waits:
			s.listed = false
		case !l.slots.CanData(s.id):
			l.waiting.push(s)
		default:
			s.listed, s.turn = false, hasTurn
			l.writable(s)
			n--
		}
	}
}
