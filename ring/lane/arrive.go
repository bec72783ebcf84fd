package lane

import "github.com/rdmanet/go-rdmanet/ring"

// Arrive takes in a message that has completed: its immediate and, for a control message, a copy
// of the next record in the ring of records. The error is a *ProtocolError about the lane, which
// has to be ended. A violation about one stream is no error: it resets the stream, and
// EventBroken tells it.
func (l *Lane) Arrive(imm uint32, record []byte) error {
	d, err := ParseDoorbell(imm)
	if err != nil {
		return err
	}
	return l.ArriveDoorbell(d, record)
}

// ArriveDoorbell is Arrive for a caller who has decoded the immediate.
func (l *Lane) ArriveDoorbell(d Doorbell, record []byte) error {
	if err := l.slots.Arrived(); err != nil {
		return err
	}
	if d.Type != TypeControl && record != nil {
		return violation(RuleRecordLength, 0, uint64(len(record)), 0)
	}
	switch d.Type {
	case TypeSlots:
		if err := l.slots.Returned(int(d.N)); err != nil {
			return err
		}
		l.slotsOpened(int(d.N))
		return nil
	case TypeControl:
		return l.recordArrived(record)
	}
	s, err := l.live(d.Stream)
	if err != nil {
		return err
	}
	if d.Type == TypeCredit {
		return l.creditArrived(s, d.N)
	}
	return l.dataArrived(s, d.N)
}

// live returns the stream that a message is for: OPEN has passed, the peer has accepted it
// if that was for the peer to do, and it has not ended it.
func (l *Lane) live(id ID) (*Stream, error) {
	s := l.table.At(id) // has none above the highest id
	if s != nil && s.opened && !s.endGot && (s.decided || l.cfg.Role == RoleListener) {
		return s, nil
	}
	return nil, l.notLive(id)
}

// notLive is why a message of id is not for a stream that live returns.
func (l *Lane) notLive(id ID) error {
	if id > l.cfg.Streams {
		return violation(RuleStream, id, uint64(id), uint64(l.cfg.Streams))
	}
	if s := l.table.At(id); s == nil || !s.opened || l.cfg.Role == RoleDialer && !s.decided {
		return violation(RuleNotOpen, id, 0, 0)
	}
	return violation(RuleAfterEnd, id, 0, 0)
}

// dataArrived takes in n bytes.
func (l *Lane) dataArrived(s *Stream, n uint32) error {
	if s.drops {
		return nil
	}
	if s.finGot {
		l.breakOff(s, RuleAfterFIN, uint64(n))
		return nil
	}
	err := error(nil)
	if s.sums != nil && n%ring.FrameAlign != 0 {
		err = violation(RuleFrame, s.id, uint64(n), ring.FrameAlign)
	} else {
		err = s.rx.data(n)
	}
	if err != nil {
		l.broke(s, err)
		return nil
	}
	l.readable(s)
	if s.rx.creditDue() {
		l.owe(s)
	}
	return nil
}

// creditArrived gives the stream's writer room.
func (l *Lane) creditArrived(s *Stream, granules uint32) error {
	if s.endSent || s.ignored { // nothing is sent any more, so a lie about it is no news
		return nil
	}
	if err := s.tx.credit(granules); err != nil {
		l.broke(s, err)
		return nil
	}
	l.writable(s)
	return nil
}

// broke resets a stream whose peer broke a rule of it.
func (l *Lane) broke(s *Stream, err error) {
	if e, ok := err.(*ProtocolError); ok {
		e.Stream = s.id
	}
	l.Reset(s, CodeProtocol)
	l.tell(Event{Kind: EventBroken, Stream: s, Err: err})
	l.writable(s)
}

func (l *Lane) breakOff(s *Stream, rule Rule, got uint64) { l.broke(s, violation(rule, s.id, got, 0)) }

// recordArrived takes in a record.
func (l *Lane) recordArrived(b []byte) error {
	r, err := ParseRecord(b)
	if err != nil {
		return err
	}
	if r.Epoch != l.cfg.Epoch {
		return violation(RuleEpoch, 0, uint64(r.Epoch), uint64(l.cfg.Epoch))
	}
	if r.Number != l.got {
		return violation(RuleNumber, 0, uint64(r.Number), uint64(l.got))
	}
	l.got++
	if by := senders[r.Kind]; by != 0 && by == l.cfg.Role {
		return violation(RuleRole, r.Stream, uint64(r.Kind), 0)
	}
	if r.Sum != 0 && !l.cfg.Checksums {
		return violation(RuleReserved, r.Stream, uint64(r.Sum), 0)
	}
	switch r.Kind {
	case KindPlaces:
		return l.placesArrived(&r)
	case KindWant:
		l.tell(Event{Kind: EventWant, Count: r.Count})
		return nil
	case KindRecall:
		l.recalled(int(r.Count))
		return nil
	case KindGoAway:
		return l.goAwayArrived(&r)
	case KindAbort:
		l.tell(Event{Kind: EventAborted, Err: Rule(r.Code)})
		return nil
	}
	return l.streamRecord(&r)
}

// senders has the role that sends a kind, where only one does.
var senders = [numKinds]Role{
	KindOpen: RoleDialer, KindRelease: RoleDialer, KindWant: RoleDialer,
	KindAccepted: RoleListener, KindRefused: RoleListener, KindPlaces: RoleListener, KindRecall: RoleListener,
}

// streamRecord takes in a record about a stream.
func (l *Lane) streamRecord(r *Record) error {
	if r.Stream > l.cfg.Streams {
		return violation(RuleStream, r.Stream, uint64(r.Stream), uint64(l.cfg.Streams))
	}
	s := l.table.At(r.Stream)
	switch r.Kind {
	case KindOpen:
		return l.openArrived(s, r)
	case KindRelease:
		return l.releaseArrived(s, r.Stream)
	case KindAccepted:
		return l.acceptedArrived(r)
	case KindRefused:
		return l.refusedArrived(s, r)
	}
	s, err := l.live(r.Stream)
	if err != nil {
		return err
	}
	switch r.Kind {
	case KindRing:
		if s.endSent || s.ignored { // as for a credit
			return nil
		}
		if err := s.tx.offer(r.Ring); err != nil {
			l.broke(s, err)
		} else if !s.finished() {
			l.queue(s, todoMoved)
		}
	case KindMoved:
		l.moved(s)
	case KindFIN:
		l.finArrived(s, r)
	case KindClose, KindReset:
		l.endArrived(s, r)
	}
	return nil
}

// acceptedArrived takes in that the listener has accepted streams.
func (l *Lane) acceptedArrived(r *Record) error {
	for i := range ID(r.Count) {
		if !l.table.At(r.Stream + i).unanswered() {
			return violation(RuleNotOpen, r.Stream+i, uint64(r.Kind), 0)
		}
	}
	for i := range ID(r.Count) {
		s := l.table.At(r.Stream + i)
		l.answered(s)
		l.tell(Event{Kind: EventAccepted, Stream: s})
	}
	return nil
}

// refusedArrived takes in that the listener has refused a stream.
func (l *Lane) refusedArrived(s *Stream, r *Record) error {
	if !s.unanswered() {
		return violation(RuleNotOpen, r.Stream, uint64(r.Kind), 0)
	}
	l.answered(s)
	s.refused, s.drops, s.endGot, s.endSent, s.todo = true, true, true, true, 0
	l.tell(Event{Kind: EventRefused, Stream: s, Code: r.Code})
	l.writable(s)
	l.release(s)
	return nil
}

// answered records that the listener has said what becomes of a stream.
func (l *Lane) answered(s *Stream) {
	s.decided = true
	if l.opens-s.number < l.opens-l.seen {
		l.seen = s.number
	}
}

// unanswered reports whether the listener has not said what becomes of a stream, which may be nil.
func (s *Stream) unanswered() bool { return s != nil && s.opened && !s.decided }

func (l *Lane) moved(s *Stream) {
	if s.ignored {
		return
	}
	err := violation(RuleMove, s.id, 0, 0)
	if s.todo&todoRing == 0 { // else the offer was not sent
		err = s.rx.moved()
	}
	if err != nil {
		if !s.drops { // else it has ended, and a lie is no news
			l.broke(s, err)
		}
		return
	}
	l.tell(Event{Kind: EventMoved, Stream: s})
}

func (l *Lane) finArrived(s *Stream, r *Record) {
	switch {
	case s.drops:
		s.finGot = true
	case s.finGot:
		l.breakOff(s, RuleAfterFIN, 0)
	case r.Total != s.rx.received:
		l.broke(s, violation(RuleTotal, s.id, r.Total, s.rx.received))
	default:
		s.finGot, s.ordered = true, true
		s.endSum(r.Sum)
		l.readable(s)
	}
}

// endArrived takes in the CLOSE or RESET of a stream, and answers it.
func (l *Lane) endArrived(s *Stream, r *Record) {
	s.endGot = true
	switch {
	case s.ignored:
		return
	case r.Kind == KindReset:
		s.broken = true
		l.tell(Event{Kind: EventReset, Stream: s, Code: r.Code})
	case !s.drops && r.Total != s.rx.received:
		l.broke(s, violation(RuleTotal, s.id, r.Total, s.rx.received))
	default:
		if !s.drops { // else the sum is also of bytes that were dropped
			s.ordered = true
			s.endSum(r.Sum)
		}
		l.tell(Event{Kind: EventClosed, Stream: s})
	}
	l.writable(s)
	l.end(s, todoClose)
	l.release(s)
}
