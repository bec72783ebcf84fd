package lane

import "math"

// Grant grants the dialer count places: the ids from first on, with rings of the size of r, one
// behind the other from r on, and the ports from port on. Only the listener may call it. The error
// matches ring.ErrConfig if an id is out of range or in use, or is ErrGoingAway.
func (l *Lane) Grant(first ID, count int, r Ring, port uint16) error {
	if l.goAway.announced {
		return ErrGoingAway
	}
	if l.cfg.Role != RoleListener || first == 0 || count <= 0 || count > int(l.cfg.Streams)-int(first)+1 || !r.valid(uint64(count)) ||
		port == 0 || int(port)+count-1 > math.MaxUint16 {
		return misuse("cannot grant %d places from %d on with %+v and port %d", count, first, r, port)
	}
	for id := first; int(id) < int(first)+count; id++ {
		if l.table.At(id) != nil {
			return misuse("stream %d is in use", id)
		}
	}
	for i := range count {
		id := first + ID(i)
		own := r
		own.Addr += uint64(i) * uint64(r.Size)
		l.table.Set(id, &Stream{id: id, rx: newReceiver(own), sums: l.newSums()})
	}
	l.granted += count
	l.grants.push(Record{Kind: KindPlaces, Stream: first, Count: uint16(count), Ring: r, Port: port})
	return nil
}

// placesArrived takes in the places that the listener grants.
func (l *Lane) placesArrived(r *Record) error {
	if l.goAway.announced {
		return violation(RuleGoAway, r.Stream, uint64(r.Count), 0)
	}
	if last := int(r.Stream) + int(r.Count) - 1; last > int(l.cfg.Streams) {
		return violation(RuleStream, r.Stream, uint64(last), uint64(l.cfg.Streams))
	}
	for i := range ID(r.Count) {
		if l.table.At(r.Stream+i) != nil {
			return violation(RulePlace, r.Stream+i, uint64(r.Stream+i), 0)
		}
	}
	for i := range ID(r.Count) {
		to := r.Ring
		to.Addr += uint64(i) * uint64(to.Size)
		s := &Stream{id: r.Stream + i, tx: newSender(to), placed: true, own: r.Port + uint16(i), sums: l.newSums()}
		l.table.Set(s.id, s)
		l.places.push(s)
	}
	l.tell(Event{Kind: EventPlaces, Count: r.Count})
	return nil
}

// Open opens a stream in the oldest place that is free. r is its ring at this end. Its port is
// that of the place if port is 0, else port, which the listener may refuse. Only the dialer may
// call it. The error is ErrNoPlace, ErrGoingAway, or matches ring.ErrConfig.
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
	s.rx, s.port = newReceiver(r), port
	if port == 0 {
		s.port = s.own
	}
	l.queue(s, todoOpen)
	return s, nil
}

// Want tells the listener that n more dials wait for a place.
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
	return l.granted
}

// Untaken reports whether id is a place in which the listener has seen no stream opened. Once the dialer
// has answered GOAWAY none ever is, and nobody writes to its ring.
func (l *Lane) Untaken(id ID) bool {
	s := l.table.At(id)
	return s != nil && !s.opened
}

// Recall asks the dialer for n places more back, or for all that it has. Those come by
// EventReleased; some may have been taken meanwhile.
func (l *Lane) Recall(n int) {
	if l.cfg.Role != RoleListener || l.goAway.announced {
		return
	}
	n = min(n, l.granted-l.asked, int(MaxStream)-int(l.recall))
	l.recall += uint16(n)
	l.asked += n
}

// Recalled returns how many places were asked back and neither given back nor taken yet. A dialer
// that keeps to the protocol brings it to 0: it gives back the places it has, and has opened
// streams in the others or given them back before. GOAWAY sets it to 0 as well.
func (l *Lane) Recalled() int { return l.asked }

// KeptPlaces returns the *ProtocolError about a dialer that does not answer RECALL in time. The
// caller decides when that is: a Lane has no clock.
func (l *Lane) KeptPlaces() error { return violation(RuleRecall, 0, uint64(l.asked), 0) }

// placeUsed counts a place that the dialer has taken or given back.
func (l *Lane) placeUsed() {
	l.granted--
	l.asked = max(l.asked-1, 0)
}

// recalled gives up to n places back, the last granted first.
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
	l.placeUsed()
	s.opened, s.number, s.port, s.tx = true, r.Opens, r.Port, newSender(r.Ring)
	if l.goAway.final {
		s.ignored, s.drops = true, true
		return nil
	}
	l.tell(Event{Kind: EventOpened, Stream: s})
	return nil
}

// Accept accepts s, as the answer to EventOpened. The error is ErrStream if it needs no answer.
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

// Refuse refuses s, as the answer to EventOpened. The error is ErrStream if it needs no answer,
// and matches ring.ErrConfig if code is not one of a refusal.
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

// releaseArrived takes an id back that was not taken, or whose stream was refused.
func (l *Lane) releaseArrived(s *Stream, id ID) error {
	if s == nil || !s.placed || s.opened && !(s.refused && s.endSent) {
		return violation(RuleRelease, id, uint64(id), 0)
	}
	if !s.opened {
		l.placeUsed()
	}
	s.endGot = true
	l.free(s)
	return nil
}
