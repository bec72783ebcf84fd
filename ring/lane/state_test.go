package lane

// A streamState is how far a stream is at one end.
type streamState uint8

// The states, in their order.
const (
	// statePlace: the id was granted, and no stream has it.
	statePlace streamState = iota
	// stateOpening: OPEN was not answered. The dialer may send what fits the ring of the
	// place.
	stateOpening
	// stateOpen: both directions are.
	stateOpen
	// stateHalfClosed: one end has sent FIN, or both have.
	stateHalfClosed
	// stateClosing: one end has sent CLOSE or RESET, and the other has not yet.
	stateClosing
	// stateClosed: both have. Neither sends anything but RELEASE, after which the id may be
	// granted again.
	stateClosed
)

// state returns how far the stream is.
func (s *Stream) state() streamState {
	switch {
	case s.endSent && s.endGot:
		return stateClosed
	case s.endSent || s.endGot:
		return stateClosing
	case s.finSent || s.finGot:
		return stateHalfClosed
	case s.decided:
		return stateOpen
	case s.opened || s.todo&todoOpen != 0:
		return stateOpening
	}
	return statePlace
}

func (s streamState) String() string {
	return [...]string{"place", "opening", "open", "half-closed", "closing", "closed"}[s]
}

// unsound names what the lane relies on and s contradicts.
func (s *Stream) unsound() string {
	switch ended := s.endGot || s.drops; {
	case s.opened && s.todo&todoOpen != 0:
		return "opened twice"
	case s.endSent && !ended:
		return "ended while it is read"
	case s.ignored && !ended:
		return "ignored while it is read"
	case s.endSent && s.todo&^todoRelease != 0:
		return "more follows the end"
	case s.endGot && s.todo&(todoRing|todoMoved|todoFIN) != 0:
		return "more than the end answers the end"
	}
	return ""
}
