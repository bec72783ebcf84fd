package lane

import (
	"errors"

	"github.com/rdmanet/go-rdmanet/ring"
)

// A Role says which end of a lane this is.
type Role uint8

// The roles.
const (
	// RoleDialer opens streams.
	RoleDialer Role = iota + 1
	// RoleListener grants places, and accepts streams.
	RoleListener
)

// Config is what the two ends of a lane have agreed on, as one of them sees it.
type Config struct {
	Role         Role
	Epoch        uint32 // drawn at random by the dialer
	Streams      ID     // the highest id, 1 to MaxStream
	Receives     int    // posted by this end, MinDepth to MaxDepth
	PeerReceives int    // posted by the peer, MinDepth to MaxDepth
	Places       int    // records that each ring of records holds, MinPlaces to MaxPlaces
	Checksums    bool   // data messages are frames of package ring
}

var (
	// ErrNoPlace is returned by Lane.Open if the listener has granted no place that is free.
	// Lane.Want asks for places, and EventPlaces tells that there are some.
	ErrNoPlace = errors.New("lane: no place to open a stream with")
	// ErrGoingAway is returned by Lane.Open and Lane.Grant once the listener takes no more
	// streams.
	ErrGoingAway = errors.New("lane: the listener takes no more opens")
	// ErrStream is returned for a stream that is in the wrong state for the call, as a rule
	// since it has ended.
	ErrStream = errors.New("lane: the stream is past that")
)

// A Lane is one end of a lane: its slots, records and streams.
//
// Each message that completes is given to Arrive or ArriveDoorbell, in order. Messages to be
// posted are returned by Next, which is called until it has none, and by Data. They have to be
// posted in the order in which they were returned. Event returns what the application has to know.
//
// # Ids
//
// The listener grants places: each is an id and a ring. The dialer takes a place by OPEN. Each end
// ends a stream once, by CLOSE or RESET, the listener also by REFUSED, and sends nothing of the
// stream after that. An end answers the peer's end with its own at once, since the peer would
// ignore what it might still send. When the listener has ended and the dialer's end has arrived, the
// id may be granted again: a lane keeps messages in order, so nothing of the stream comes any more,
// and the dialer hears of the end before it hears of the grant. RELEASE gives an id back that the
// dialer has not ended: of a place that it did not take, and of a stream that was refused.
//
// What is granted bounds what a peer can cost: streams are bounded by places, messages by slots,
// and events by messages and streams.
type Lane struct {
	cfg    Config
	slots  slots
	table  Table[*Stream]
	places queue[*Stream] // dialer: granted and not taken, in order
	events queue[Event]
	// arrived is the stream of the next EventReadable, and arrivals are those of the ones behind it. There
	// is one for almost every message, and seldom more.
	arrived  *Stream
	arrivals queue[*Stream]

	records queue[*Stream] // that have records to send
	credits queue[*Stream] // that have credits to send
	waiting queue[*Stream] // writers that wait for slots
	turn    bool           // whose turn it is of the two queues

	sent  uint32 // records
	got   uint32
	opens uint32 // OPENs sent or taken in
	seen  uint32 // dialer: the last of them that was answered

	grants  queue[Record] // listener
	want    int           // dialer
	recall  uint16        // listener: places to be asked back
	asked   int           // listener: places asked back of which nothing has come
	granted int           // listener: places that were neither taken nor given back
	goAway  goAway
	abort   abort
	control queue[Record] // of the lane itself, a few
}

// New returns one end of a lane on which nothing was sent yet. The error matches ring.ErrConfig.
func New(c Config) (*Lane, error) {
	if c.Role != RoleDialer && c.Role != RoleListener {
		return nil, misuse("role %d", c.Role)
	}
	s, err := newSlots(c.Receives, c.PeerReceives, c.Places, c.Streams)
	if err != nil {
		return nil, err
	}
	return &Lane{cfg: c, slots: s}, nil
}

// A Bell is the doorbell of a message.
type Bell struct {
	Imm       uint32
	Solicited bool // the message is to be marked as solicited, which wakes a peer that sleeps
}

// A Message is a message to be posted: a doorbell, and for a control message its record.
type Message struct {
	Bell
	Record Record // its Kind is 0 if there is none
	Place  uint32 // of the record in the peer's ring of records
}

// Next returns the next message that is not data, and reports whether one is due and may be sent
// now. It counts as sent, and has to be posted.
func (l *Lane) Next() (Message, bool) {
	if l.abort.rule != 0 {
		return l.nextAbort()
	}
	if l.slots.Due() {
		if !l.slots.CanReturn() {
			return Message{}, false
		}
		n := l.slots.Return()
		l.slotsOpened(l.slots.free) // who waited for the return to be sent
		return Message{Bell: Bell{Doorbell{Type: TypeSlots, N: uint32(n)}.Imm(), true}}, true
	}
	if !l.slots.CanCredit() {
		return Message{}, false
	}
	if r, ok := l.laneRecord(); ok {
		return l.record(r), true
	}
	for range 2 {
		if l.turn = !l.turn; l.turn {
			if m, ok := l.nextRecord(); ok {
				return m, true
			}
		} else if m, ok := l.nextCredit(); ok {
			return m, true
		}
	}
	return Message{}, false
}

// Due reports whether Next may have a message. It is cheaper than Next: most messages leave nothing due,
// so it adds up what there is of everything before it looks.
func (l *Lane) Due() bool {
	return len(l.credits.items)|len(l.records.items)|len(l.control.items)|len(l.grants.items)|
		l.want|int(l.recall)|int(l.abort.rule) != 0 || l.slots.Due()
}

// CreditDue reports whether Next may have a credit, which is all that Consume makes due.
func (l *Lane) CreditDue() bool { return l.credits.some() }

// record makes r a message.
func (l *Lane) record(r Record) Message {
	r.Epoch, r.Number = l.cfg.Epoch, l.sent
	l.sent++
	l.slots.Record()
	return Message{
		Bell:   Bell{Doorbell{Type: TypeControl}.Imm(), true},
		Record: r, Place: r.Number & uint32(l.cfg.Places-1),
	}
}

// nextCredit sends the credit of the next stream in turn.
func (l *Lane) nextCredit() (Message, bool) {
	for l.credits.len() > 0 {
		s := l.credits.pop()
		s.credits = false
		if !s.owes() {
			continue
		}
		n := s.rx.creditSent()
		l.owe(s)
		l.slots.Credit()
		return Message{Bell: Bell{Doorbell{Type: TypeCredit, Stream: s.id, N: n}.Imm(), true}}, true
	}
	return Message{}, false
}

// owes reports whether a credit is due that the peer can use.
func (s *Stream) owes() bool {
	return s.opened && s.rx.creditDue() && s.todo&todoAccepted == 0 && s.receives()
}

// owe queues a stream whose credit is due.
func (l *Lane) owe(s *Stream) {
	if !s.credits && s.owes() && (l.cfg.Role == RoleDialer || s.decided) {
		s.credits = true
		l.credits.push(s)
	}
}

// nextRecord sends a record of the next stream in turn.
func (l *Lane) nextRecord() (Message, bool) {
	for l.records.len() > 0 && l.slots.CanRecord() {
		s := l.records.pop()
		s.queued = false
		if s.todo == 0 || s.ahead {
			continue
		}
		m := l.record(l.take(s))
		l.queue(s, 0)
		l.owe(s)
		l.writable(s)
		return m, true
	}
	return Message{}, false
}

// queue adds to what a stream has to send. Nothing goes before the answer to an OPEN, and nothing
// while bytes are written ahead.
func (l *Lane) queue(s *Stream, todo uint16) {
	s.todo |= todo
	if s.todo == 0 || s.queued || s.ahead || l.cfg.Role == RoleListener && !s.decided && s.todo&(todoAccepted|todoRefused) == 0 {
		return
	}
	s.queued = true
	l.records.push(s)
}

// take makes the first of what a stream has to send, and counts it as sent.
func (l *Lane) take(s *Stream) Record {
	first := s.todo & -s.todo
	s.todo &^= first
	r := Record{Stream: s.id}
	switch first {
	case todoOpen:
		l.opens++
		s.opened, s.number = true, l.opens
		r.Kind, r.Ring, r.Port, r.Opens = KindOpen, s.rx.Ring(), s.port, s.number
	case todoAccepted:
		s.decided = true
		r.Kind, r.Count = KindAccepted, 1+l.acceptedBehind(s)
	case todoRefused:
		s.decided, s.endSent = true, true
		r.Kind, r.Code = KindRefused, s.code
	case todoRing:
		r.Kind, r.Ring = KindRing, s.rx.offered
	case todoMoved:
		s.tx.move()
		r.Kind = KindMoved
	case todoFIN:
		s.finSent = true
		r.Kind, r.Total, r.Sum = KindFIN, s.tx.sent, s.Sum()
	case todoClose:
		s.endSent = true
		r.Kind, r.Total, r.Sum = KindClose, s.tx.sent, s.Sum()
	case todoReset:
		s.endSent = true
		r.Kind, r.Code = KindReset, s.code
	case todoRelease:
		r.Kind = KindRelease
		l.free(s)
		return r
	}
	if s.endSent {
		l.release(s)
	}
	return r
}

// acceptedBehind counts those as accepted, too, whose ids follow that of s and which are to be told
// so: one record says it of all. Of many dials at once most have such ids, as places are granted in
// runs and taken in order.
func (l *Lane) acceptedBehind(s *Stream) (n uint16) {
	for id := s.id + 1; ; id++ {
		o := l.table.At(id)
		if o == nil || o.todo&-o.todo != todoAccepted {
			return n
		}
		o.todo &^= todoAccepted
		o.decided = true
		n++
		l.owe(o)
		l.writable(o)
	}
}

// Data returns where in the peer's ring the next bytes of s go, at most n, and the doorbell that
// announces them. They count as sent, and have to be posted. follows means that what the end of the
// ring cuts off is sent at once, whatever happens: then this message need not wake the peer. ok is false
// if none may be sent now; EventWritable tells when to try again. The error is ErrStream if s has ended.
//
// On a lane with checksums p has room for a frame with Payload bytes of the stream. Its padding
// need not be written. Call Summed next.
func (l *Lane) Data(s *Stream, n int, follows bool) (p Span, b Bell, ok bool, err error) {
	if s.finished() || s.ignored {
		return p, b, false, ErrStream
	}
	if !s.sends() || l.abort.rule != 0 {
		s.waits = true
		return p, b, false, nil
	}
	if s.sums != nil && n > 0 {
		n = ring.FrameLen(n)
	}
	if p = s.tx.Next(n); p.Len == 0 || !l.slots.CanData(s.id) {
		s.waits = true
		if p.Len > 0 && !s.listed {
			s.listed = true
			if s.turn == hadTurn && !l.slots.forData() {
				l.waiting.pushFirst(s)
			} else {
				l.waiting.push(s)
			}
		}
		return Span{}, b, false, nil
	}
	if s.turn == hadTurn {
		s.turn = noTurn
	}
	s.tx.wrote(p)
	wake := !follows || int(p.Len) == n || s.tx.Free() == 0 || p.Len >= bulk
	b.Imm = dataImm(s.id, p.Len)
	b.Solicited = l.slots.Data(s.id, wake)
	return p, b, true, nil
}

// Marked reports whether the last message wakes a peer that sleeps. If not, another has to follow.
func (l *Lane) Marked() bool { return l.slots.unmarked == 0 }

// Reserve returns where Data has the next bytes of s go, at most n, for a caller that writes them there
// before it calls Data. The Len is 0 if Data would announce nothing now. Until Unreserve the peer
// keeps that memory for the stream, since it is told of neither a move nor an end, and Data returns
// the same place. There is no such place on a lane with checksums.
func (l *Lane) Reserve(s *Stream, n int) Span {
	if s.sums != nil || s.ignored || !s.sends() || l.abort.rule != 0 || !l.slots.CanData(s.id) {
		return Span{}
	}
	p := s.tx.Next(n)
	s.ahead = p.Len > 0
	return p
}

// Unreserve ends what Reserve began, and lets s send what it has to. It does nothing if Reserve has
// returned no room.
func (l *Lane) Unreserve(s *Stream) {
	s.ahead = false
	l.queue(s, 0)
}

// Consume records that the first n unread bytes in the ring of s were read, so that the peer may
// write there again. The error matches ring.ErrConfig if there are fewer.
func (l *Lane) Consume(s *Stream, n int) error {
	if err := s.rx.consume(n); err != nil {
		return err
	}
	if s.rx.creditDue() {
		l.owe(s)
	}
	return nil
}

// Offer offers the peer another ring for s, larger or smaller. From now on the peer may write to
// it; EventMoved tells that it does. The error is ring.ErrGrowing while an earlier offer is under
// way or MaxRings hold unread bytes, ErrStream if the peer sends no more, or matches
// ring.ErrConfig for an impossible ring.
func (l *Lane) Offer(s *Stream, to Ring) error {
	if !s.opened || !s.receives() {
		return ErrStream
	}
	if err := s.rx.offer(to); err != nil {
		return err
	}
	l.queue(s, todoRing)
	return nil
}

// CloseWrite ends what this end sends on s. The error is ErrStream if that has ended already.
func (l *Lane) CloseWrite(s *Stream) error {
	if s.finished() || s.ignored {
		return ErrStream
	}
	l.queue(s, todoFIN)
	return nil
}

// Close ends both directions of s in good order. Bytes that arrive later are discarded.
func (l *Lane) Close(s *Stream) {
	s.drops = true
	l.end(s, todoClose)
}

// Reset breaks s off in both directions, and tells the peer code.
func (l *Lane) Reset(s *Stream, code Code) {
	s.drops, s.broken = true, true
	if s.code == 0 {
		s.code = code
	}
	l.end(s, todoReset)
}

// end queues the end of what this end sends, once.
func (l *Lane) end(s *Stream, how uint16) {
	if s.endSent || s.ignored || s.todo&(todoClose|todoReset|todoRefused|todoRelease) != 0 {
		return
	}
	s.todo &^= todoFIN | todoMoved | todoRing
	l.queue(s, how)
}

// release frees an id when both ends have ended. A stream that was refused may have had more on its
// way to the listener, so RELEASE follows that.
func (l *Lane) release(s *Stream) {
	switch {
	case !s.endSent || !s.endGot || l.table.At(s.id) != s:
	case !s.refused:
		l.free(s)
	case l.cfg.Role == RoleDialer:
		l.queue(s, todoRelease)
	}
}

// free has an id be no stream's.
func (l *Lane) free(s *Stream) {
	l.table.Set(s.id, nil)
	if l.cfg.Role == RoleListener {
		l.tell(Event{Kind: EventReleased, Stream: s})
	}
}

// Reposted records that n receives were posted again whose messages were given to Arrive. The
// error matches ring.ErrConfig if there were fewer such messages.
func (l *Lane) Reposted(n int) error { return l.slots.Reposted(n) }

// Slots returns how many of the peer's receives are unused, and how many it has.
func (l *Lane) Slots() (free, all int) { return l.slots.Free(), l.slots.depth }

// Streams returns how many ids are in use, granted places included.
func (l *Lane) Streams() (n int) {
	for _, s := range l.table {
		if s != nil {
			n++
		}
	}
	return n
}
