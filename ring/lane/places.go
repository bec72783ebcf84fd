package lane

import "math"

// Grant makes count ids from first on places, with rings that lie one behind the other from
// r on, and ports from port on. It is for the listener. The error matches ring.ErrConfig if an id is out of range or
// in use, or is ErrGoingAway.
func (l *Lane) Grant(first ID, count int, r Ring, port uint16) error {
	if l.goAway.announced {
		return ErrGoingAway
	}
	if l.cfg.Role != RoleListener || first == 0 || count <= 0 || count > int(l.cfg.Streams)-int(first)+1 || !r.valid(uint64(count)) ||
		port == 0 || int(port)+count-1 > math.MaxUint16 {
		return misuse("cannot grant %d places from %d on with %+v and port %d", count, first, r, port)
	}
	for id := first; int(id) < int(first)+count; id++ {
		if l.table[id] != nil {
			return misuse("stream %d is in use", id)
		}
	}
	for i := range count {
		id := first + ID(i)
		own := r
		own.Addr += uint64(i) * uint64(r.Size)
		l.table[id] = &Stream{id: id, rx: NewReceiver(own), sums: l.newSums()}
	}
	l.stored += count
	l.grants.push(Record{Kind: KindPlaces, Stream: first, Count: uint16(count), Ring: r, Port: port})
	return nil
}

// placesArrived makes places of what the listener grants.
func (l *Lane) placesArrived(r *Record) error {
	if l.goAway.announced {
		return violation(RuleGoAway, r.Stream, uint64(r.Count), 0)
	}
	if last := int(r.Stream) + int(r.Count) - 1; last > int(l.cfg.Streams) {
		return violation(RuleStream, r.Stream, uint64(last), uint64(l.cfg.Streams))
	}
	for i := range ID(r.Count) {
		if l.table[r.Stream+i] != nil {
			return violation(RulePlace, r.Stream+i, uint64(r.Stream+i), 0)
		}
	}
	for i := range ID(r.Count) {
		to := r.Ring
		to.Addr += uint64(i) * uint64(to.Size)
		s := &Stream{id: r.Stream + i, tx: NewSender(to), placed: true, own: r.Port + uint16(i), sums: l.newSums()}
		l.table[s.id] = s
		l.places.push(s)
	}
	l.tell(Event{Kind: EventPlaces, Count: r.Count})
	return nil
}

// Open takes a place for a new stream, whose ring at this end is r. Its port is that of the
// place if port is 0, else port, which the listener may refuse. It is for the dialer. The error is ErrNoPlace, ErrGoingAway, or matches ring.ErrConfig.
func (l *Lane) Open(r Ring, port uint16) (*Stream, error) {
	switch {
	case l.cfg.Role != RoleDialer || !r.valid(1):
		return nil, misuse("cannot open a stream from port %d with %+v", port, r)
	case l.goAway.announced:
		return nil, ErrGoingAway
	case l.places.len() == 0:
		return nil, ErrNoPlace
	}
	s := l.places.pop()
	s.rx, s.port = NewReceiver(r), port
	if port == 0 {
		s.port = s.own
	}
	l.queue(s, todoOpen)
	return s, nil
}

// Want tells the listener that n dials more wait for a place.
func (l *Lane) Want(n int) {
	if l.cfg.Role == RoleDialer && !l.goAway.announced {
		l.want += max(n, 0)
	}
}

// Places returns how many places are granted that no stream has taken, as far as this end knows.
func (l *Lane) Places() int {
	if l.cfg.Role == RoleDialer {
		return l.places.len()
	}
	return l.stored
}

// Recall asks the dialer for n places more back, or for all that it has. Those come by
// EventReleased; some may have been taken meanwhile.
func (l *Lane) Recall(n int) {
	if l.cfg.Role != RoleListener || l.goAway.announced {
		return
	}
	n = min(n, l.stored-l.asked, int(MaxStream)-int(l.recall))
	l.recall += uint16(n)
	l.asked += n
}

// Recalled returns how many places were asked back of which nothing was heard. It comes to 0,
// unless GOAWAY does first: a dialer gives back so many of those that it has, and what it has
// not any more it has taken, or given back before.
func (l *Lane) Recalled() int { return l.asked }

// KeptPlaces is the violation of a dialer that does not answer RECALL. What is too late is for
// the caller to say, who has a clock.
func (l *Lane) KeptPlaces() error { return violation(RuleRecall, 0, uint64(l.asked), 0) }

// unstored counts a place that the dialer has taken or given back.
func (l *Lane) unstored() {
	l.stored--
	l.asked = max(l.asked-1, 0)
}

// recalled gives places back, the last first.
func (l *Lane) recalled(n int) {
	for range min(n, l.places.len()) {
		l.queue(l.places.popLast(), todoRelease)
	}
}

// openArrived begins a stream on a place.
func (l *Lane) openArrived(s *Stream, r *Record) error {
	switch {
	case l.goAway.stopped:
		return violation(RuleGoAway, r.Stream, uint64(r.Opens), uint64(l.opens))
	case s == nil || !s.placed || s.opened:
		return violation(RulePlace, r.Stream, uint64(r.Stream), 0)
	case r.Opens != l.opens+1:
		return violation(RuleOpenNumber, r.Stream, uint64(r.Opens), uint64(l.opens)+1)
	}
	l.opens++
	l.unstored()
	s.opened, s.number, s.port, s.tx = true, r.Opens, r.Port, NewSender(r.Ring)
	if l.goAway.final {
		s.ignored, s.drops = true, true
		return nil
	}
	l.tell(Event{Kind: EventOpened, Stream: s})
	return nil
}

// Accept answers an OPEN: the stream stands.
func (l *Lane) Accept(s *Stream) error {
	if err := l.mayAnswer(s); err != nil {
		return err
	}
	l.queue(s, todoAccepted)
	if s.endGot && s.todo&(todoClose|todoReset) == 0 {
		l.end(s, todoClose)
	}
	return nil
}

// Refuse answers an OPEN: there is no stream. The error matches ring.ErrConfig for a code
// that is not a refusal's.
func (l *Lane) Refuse(s *Stream, code Code) error {
	if code == 0 || code > lastRefusal {
		return misuse("cannot refuse for code %d", code)
	}
	if err := l.mayAnswer(s); err != nil {
		return err
	}
	s.drops, s.refused, s.code, s.todo = true, true, code, 0
	l.queue(s, todoRefused)
	return nil
}

func (l *Lane) mayAnswer(s *Stream) error {
	if l.cfg.Role != RoleListener || !s.opened || s.decided || s.ignored || s.todo&(todoAccepted|todoRefused) != 0 {
		return ErrStream
	}
	return nil
}

// releaseArrived frees an id.
func (l *Lane) releaseArrived(s *Stream, id ID) error {
	if s == nil || !s.placed || s.opened && (!s.endSent || !s.endGot && !s.refused) {
		return violation(RuleRelease, id, uint64(id), 0)
	}
	if !s.opened {
		l.unstored()
	}
	s.endGot = true
	l.table[id] = nil
	l.tell(Event{Kind: EventReleased, Stream: s})
	return nil
}
