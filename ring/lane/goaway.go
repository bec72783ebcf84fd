package lane

// goAway is how far a listener has gone away, in two steps as HTTP/2 has them (RFC 9113,
// section 6.8), with the dialer's answer between them:
//
//	listener                       dialer
//	GOAWAY announce  ------->      opens no more; places are void
//	                 <-------      GOAWAY stopped: so many opens were sent
//	GOAWAY final     ------->      opens above were not seen, and are dialled again
//
// A listener that cannot wait for the answer sends the last step without it. It ignores streams
// that are opened then, and the dialer learns of them by the count.
type goAway struct {
	announced bool
	stopped   bool
	final     bool
	last      uint32 // opens that are served, once final
}

// GoAway grants no more places, and asks the dialer to open no more streams. Only the listener
// may call it.
func (l *Lane) GoAway() {
	if l.cfg.Role == RoleListener && !l.goAway.announced {
		l.goAway.announced = true
		l.recall, l.asked = 0, 0 // places are void
		l.grants.clear()
		l.control.push(Record{Kind: KindGoAway, Stage: StageAnnounce})
	}
}

// GoAwayFinal tells the dialer that streams which were opened until now are served and later ones
// ignored. Only the listener may call it.
func (l *Lane) GoAwayFinal() {
	if l.cfg.Role == RoleListener && !l.goAway.final {
		l.GoAway()
		l.goAway.final, l.goAway.last = true, l.opens
		l.control.push(Record{Kind: KindGoAway, Stage: StageFinal, Opens: l.opens})
	}
}

// goAwayArrived takes a step.
func (l *Lane) goAwayArrived(r *Record) error {
	g := &l.goAway
	role := RoleDialer // who takes this step in
	if r.Stage == StageStopped {
		role = RoleListener
	}
	switch {
	case l.cfg.Role != role:
		return violation(RuleRole, 0, uint64(r.Stage), 0)
	case r.Stage == StageAnnounce && (g.announced || r.Opens != 0),
		r.Stage == StageStopped && (!g.announced || g.stopped),
		r.Stage == StageFinal && (!g.announced || g.final):
		return violation(RuleGoAway, 0, uint64(r.Stage), 0)
	case r.Stage == StageStopped && r.Opens != l.opens, r.Stage == StageFinal && int32(r.Opens-l.opens) > 0:
		return violation(RuleOpenNumber, 0, uint64(r.Opens), uint64(l.opens))
	}
	l.tell(Event{Kind: EventGoAway, Stage: r.Stage})
	switch r.Stage {
	case StageAnnounce:
		g.announced, l.want = true, 0 // there is nothing to be had for a WANT any more
		l.dropPlaces()
		l.control.push(Record{Kind: KindGoAway, Stage: StageStopped, Opens: l.opens})
	case StageStopped:
		g.stopped = true
	case StageFinal:
		g.final, g.last = true, r.Opens
		return l.redial()
	}
	return nil
}

// dropPlaces forgets the places. Streams in them whose OPEN was not sent have to be dialed again.
func (l *Lane) dropPlaces() {
	for id, s := range l.table {
		if s != nil && !s.opened && s.todo&todoRelease == 0 {
			l.table[id] = nil
			l.drop(s)
		}
	}
	l.places.clear()
}

// redial drops the streams that the listener ignores: they have to be dialed again.
func (l *Lane) redial() error {
	if l.opens-l.seen < l.opens-l.goAway.last {
		return violation(RuleOpenNumber, 0, uint64(l.goAway.last), uint64(l.seen))
	}
	for id, s := range l.table {
		if l.unseen(s) {
			l.table[id] = nil
			l.drop(s)
		}
	}
	return nil
}

// unseen reports whether s was opened after what GOAWAY serves. Numbers begin anew after 2^32 opens, so it is
// asked how many were opened since, and not which number is larger. A stream that was answered may be so old
// that a later one has its number.
func (l *Lane) unseen(s *Stream) bool {
	return s.unanswered() && l.opens-s.number < l.opens-l.goAway.last
}

// drop ends a stream of which the listener knows nothing.
func (l *Lane) drop(s *Stream) {
	dialled := s.opened || s.todo&todoOpen != 0
	s.todo, s.ignored, s.drops, s.endSent, s.endGot = 0, true, true, true, true
	if dialled {
		l.tell(Event{Kind: EventRedial, Stream: s})
	}
	l.writable(s)
}
