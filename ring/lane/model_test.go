package lane

import (
	"errors"
	"fmt"
	"slices"
)

// The model is two ends of a lane with what lies between them and the applications above
// them. Its transport is that of RC: in order, exactly once, a bounded number of messages
// under way, one receive for each. The model keeps its own books: of every byte of every
// ring, and of which life of an id a message belongs to. The explorer takes it every way.

// A plan says what one scenario does.
type plan struct {
	name       string
	places     int // ids that are granted at first
	opens      int
	rings      [2]uint32 // sizes at first: the dialer's own, the places'
	write      [2]int    // bytes that each application writes on each stream
	chunk      int       // at once
	offers     [2][]uint32
	finish     [2]how
	patient    bool // ends come only when all offers were made, and moved to
	impatient  bool // ends come at any time, not only when all is written
	refuse     bool // the first open is refused for its port, and dialled again
	goAway     bool // the listener goes away at any time
	hurry      bool // and does not wait for the dialer's word
	sleeps     bool // ends sleep, and only solicited messages wake them
	pumpsLater bool // what is due need not be sent at once
	wire       int  // messages under way in each direction
	aborts     bool // an end says at any time that the other has lied
	recall     bool // the listener asks for a place back
	unread     int  // 1 + the end that reads nothing
	silent     int  // streams that the listener's peer does not read, by number from 1
	checksums  bool // what is written goes in frames
	bite       int  // bytes of the stream that a Read takes from frames
	ahead      bool // what is written is in the peer's ring before it is announced
}

// how an application ends a stream.
type how uint8

const (
	withClose how = iota
	withFIN       // then Close, when the peer's end of file is read
	withReset
)

// packet is a message under way.
type packet struct {
	Message
	span   Span
	offset uint64 // of the stream, of its first byte
	frame  []byte // with checksums
	life   uint16 // which stream, 0: none
}

// memory is the model's own book of a ring: for each byte, which byte of the stream was
// written there and not read, from 1 on.
type memory struct {
	bytes []uint16
	data  []byte // with checksums, what is really there
	gone  bool   // given back
}

// app is an application's end of a stream.
type app struct {
	s       *Stream
	left    int // bytes to write
	parked  bool
	ready   bool   // there was an event since there was nothing to read
	wrote   uint64 // bytes of rings, those of frames included
	read    uint64
	framed  [2]uint64 // bytes of the stream that it has written and read, with checksums
	offers  int
	done    bool // it has ended its side
	eof     bool
	gone    bool // refused, or to be dialled again
	partial bool // ended before all was written or read
	moved   bool
	ahead   Span // in the peer's ring, written and not announced
}

type model struct {
	p     *plan
	lanes [2]*Lane
	wire  [2][]packet // to each end
	sleep [2]bool
	rings []memory // by rkey
	apps  [2][]app // by life

	opens    int // still to do
	life     uint16
	wants    bool
	redials  int
	wentAway int
	recalled bool
	aborted  int  // 1 + the end that has ended the lane
	told     bool // and the other has heard why
	refused  bool
	posted   int

	breach *breach
	copies []*Stream // that cloneInto has made
	trial  *model    // what due has tried on, for the next time
}

// breach is a rule that is broken on purpose, before or after something is done.
type breach struct {
	name   string
	plan   string
	want   string // of the failure
	before func(m *model, end int, at spot)
	after  func(m *model, end int, at spot)
	packet func(m *model, end int, p *packet) (lost bool)
}

type spot uint8

const (
	atArrive spot = iota
	atNext
	atData
	atRead
)

func newModel(p *plan) (*model, error) {
	m := &model{p: p, opens: p.opens}
	for i := range m.lanes {
		var err error
		m.lanes[i], err = New(Config{Role: Role(i + 1), Epoch: 7, Streams: 2, Receives: MinDepth, PeerReceives: MinDepth, Places: MinPlaces, Checksums: p.checksums})
		if err != nil {
			return nil, err
		}
		m.apps[i] = make([]app, 1, 8)
	}
	for id := range p.places {
		if err := m.grant(ID(id + 1)); err != nil {
			return nil, err
		}
	}
	return m, m.settle()
}

func (m *model) ring(size uint32) Ring {
	r := memory{bytes: make([]uint16, size)}
	if m.p.checksums {
		r.data = make([]byte, size)
	}
	m.rings = append(m.rings, r)
	return Ring{Addr: uint64(len(m.rings)) << 32, RKey: uint32(len(m.rings) - 1), Size: size}
}

func (m *model) grant(id ID) error { return m.lanes[1].Grant(id, 1, m.ring(m.p.rings[1]), 40000) }

func (m *model) do(e int, at spot, f func() error) error {
	if b := m.breach; b != nil && b.before != nil {
		b.before(m, e, at)
	}
	err := f()
	for _, s := range m.lanes[e].table {
		if s == nil || err != nil || m.breach != nil {
			continue
		}
		if u := s.unsound(); u != "" {
			return failf("a stream is %s", u)
		}
	}
	if b := m.breach; b != nil && b.after != nil {
		b.after(m, e, at)
	}
	return err
}

// cloneInto copies a model into the memory of one that nobody needs any more, or of an empty one:
// most of what an explorer does is copying. Streams are copied once, however many point to them.
func (m *model) cloneInto(c *model) *model {
	was, spare := *c, c.copies
	*c = *m
	c.copies = was.copies[:0]
	c.rings = was.rings[:0]
	for i, r := range m.rings {
		if i < len(was.rings) {
			to := was.rings[i]
			r.bytes, r.data = recopy(to.bytes, r.bytes), recopy(to.data, r.data)
		} else {
			r.bytes, r.data = slices.Clone(r.bytes), slices.Clone(r.data)
		}
		c.rings = append(c.rings, r)
	}
	for i, l := range m.lanes {
		var copies streamCopies
		one := func(s *Stream) *Stream { return copies.of(s, &spare, &c.copies) }
		all := func(to, list []*Stream) []*Stream {
			to = recopy(to, list)
			for k, s := range to {
				to[k] = one(s)
			}
			return to
		}
		d := was.lanes[i]
		if d == nil {
			d = new(Lane)
		}
		old := *d
		*d = *l
		d.slots.used, d.slots.streams = recopy(old.slots.used, l.slots.used), recopy(old.slots.streams, l.slots.streams)
		d.table, d.places.items = all(old.table, l.table), all(old.places.items, l.places.items)
		d.records.items, d.credits.items = all(old.records.items, l.records.items), all(old.credits.items, l.credits.items)
		d.waiting.items = all(old.waiting.items, l.waiting.items)
		d.grants.items, d.control.items = recopy(old.grants.items, l.grants.items), recopy(old.control.items, l.control.items)
		d.arrived = one(l.arrived)
		d.arrivals.items, d.events.items = all(old.arrivals.items, l.arrivals.items), recopy(old.events.items, l.events.items)
		for k := range d.events.items {
			d.events.items[k].Stream = one(d.events.items[k].Stream)
		}
		c.lanes[i] = d
		c.wire[i] = recopy(was.wire[i], m.wire[i])
		c.apps[i] = recopy(was.apps[i], m.apps[i])
		for k := range c.apps[i] {
			c.apps[i][k].s = one(c.apps[i][k].s)
		}
	}
	return c
}

// recopy copies a slice into the memory of another; nil stays nil.
func recopy[S ~[]E, E any](to, from S) S {
	if from == nil {
		return nil
	}
	if to == nil {
		return slices.Clone(from)
	}
	return append(to[:0], from...)
}

// streamCopies are the streams of a lane and their copies.
type streamCopies struct {
	from, to [16]*Stream
	n        int
}

// of returns the copy of a stream, which is in one of the spare ones if there is one, and in made.
func (c *streamCopies) of(s *Stream, spare, made *[]*Stream) *Stream {
	if s == nil {
		return nil
	}
	if k := slices.Index(c.from[:c.n], s); k >= 0 {
		return c.to[k]
	}
	t := &Stream{}
	if len(*spare) > 0 {
		t, *spare = (*spare)[0], (*spare)[1:]
	}
	older, both := t.rx.older, t.sums
	*t = *s
	t.rx.older = recopy(older, s.rx.older)
	if s.sums != nil {
		if both == nil {
			both = new(sums)
		}
		*both = *s.sums
		t.sums = both
	}
	*made = append(*made, t)
	c.from[c.n], c.to[c.n] = s, t
	c.n++
	return t
}

// app returns the end of the stream s at end e.
func (m *model) app(e int, s *Stream) *app {
	for int(s.port) >= len(m.apps[e]) {
		m.apps[e] = append(m.apps[e], app{})
	}
	return &m.apps[e][s.port]
}

func failf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// post puts a message on the wire, and its bytes into the peer's memory: it may be there
// long before it completes.
func (m *model) post(e int, p packet) error {
	if m.posted++; m.posted > 2000 {
		return failf("messages without end")
	}
	if p.Record.Kind != 0 {
		b := make([]byte, RecordLen)
		if err := p.Record.Put(b); err != nil {
			return err
		}
	}
	if b := m.breach; b != nil && b.packet != nil && b.packet(m, e, &p) {
		return nil
	}
	if p.span.Len > 0 {
		if err := m.put(p.span, p.offset); err != nil {
			return err
		}
		data := m.rings[p.span.Ring.RKey].data
		copy(data[min(int(p.span.Off), len(data)):], p.frame)
	}
	m.wire[1-e] = append(m.wire[1-e], p)
	if p.Solicited {
		m.sleep[1-e] = false
	}
	return nil
}

// put is bytes that come into the peer's memory.
func (m *model) put(p Span, offset uint64) error {
	r := &m.rings[p.Ring.RKey]
	if r.gone {
		return failf("bytes go to a ring that was given back")
	}
	for i := range uint64(p.Len) {
		at := &r.bytes[uint64(p.Off)+i]
		if *at != 0 {
			return failf("an unread byte is overwritten")
		}
		*at = uint16(offset+i) + 1
	}
	return nil
}

// room reports whether end e may post.
func (m *model) room(e int) bool { return len(m.wire[1-e]) < m.p.wire }

// next posts the next message that is no data.
func (m *model) next(e int) (did bool, err error) {
	l := m.lanes[e]
	if l.slots.Due() && l.slots.Free() == 0 {
		return false, failf("a return of slots finds none")
	}
	var msg Message
	var life uint16
	err = m.do(e, atNext, func() error {
		lives := m.lives(e)
		pending := l.Due()
		if msg, did = l.Next(); !did {
			return nil
		}
		if !pending {
			return failf("a message of which Due does not know")
		}
		if d, err := ParseDoorbell(msg.Imm); err != nil {
			return err
		} else if d.Type == TypeCredit {
			life = lives[d.Stream]
		} else if k := msg.Record.Kind; k != 0 && k != KindPlaces && msg.Record.Stream != 0 {
			life = lives[msg.Record.Stream]
		}
		return nil
	})
	if err == nil && did {
		err = m.post(e, packet{Message: msg, life: life})
	}
	if err == nil {
		err = m.events(e)
	}
	return did, err
}

// lives tells which stream has which id at end e.
func (m *model) lives(e int) (out [4]uint16) {
	for id, s := range m.lanes[e].table {
		if s != nil {
			out[id] = s.port
		}
	}
	return out
}

// settle sends what is due at once, where a plan says so.
func (m *model) settle() error {
	for e := range 2 {
		for !m.p.pumpsLater && m.room(e) {
			did, err := m.next(e)
			if err != nil {
				return err
			}
			if !did {
				break
			}
		}
	}
	return nil
}

// arrive completes the next message at end e.
func (m *model) arrive(e int) error {
	p := m.wire[e][0]
	m.wire[e] = m.wire[e][1:]
	l := m.lanes[e]
	var record []byte
	if p.Record.Kind != 0 {
		record = make([]byte, RecordLen)
		if err := p.Record.Put(record); err != nil {
			return err
		}
	}
	id := p.Record.Stream
	if d, err := ParseDoorbell(p.Imm); err == nil && d.Stream != 0 {
		id = d.Stream
	}
	if p.span.Len > 0 && m.rings[p.span.Ring.RKey].gone {
		return failf("bytes arrive in a ring that was given back")
	}
	err := m.do(e, atArrive, func() error {
		if have := m.lives(e)[id]; p.life != 0 && have != 0 && have != p.life {
			return failf("a message for one life of an id comes to another")
		}
		return l.Arrive(p.Imm, record)
	})
	if err != nil {
		return err
	}
	if err := l.Reposted(1); err != nil {
		return err
	}
	return m.events(e)
}

// events lets the applications know.
func (m *model) events(e int) error {
	l := m.lanes[e]
	for {
		pending := l.Happened()
		ev, ok := l.Event()
		if !ok {
			return nil
		}
		if !pending {
			return failf("an event of which Happened does not know")
		}
		var a *app
		if ev.Stream != nil {
			a = m.app(e, ev.Stream)
			if a.s == nil {
				a.s, a.left = ev.Stream, m.p.write[e]
			}
		}
		switch ev.Kind {
		case EventReadable, EventAccepted:
			a.ready = true
		case EventClosed, EventReset:
			a.ready, a.parked = true, false
			if ev.Kind == EventReset {
				a.partial = true
			}
		case EventWritable:
			a.parked = false
			l.PassTurn(ev.Stream)
		case EventBroken:
			return ev.Err
		case EventOpened:
			if m.p.refuse && !m.refused {
				m.refused, a.gone = true, true
				if err := l.Refuse(ev.Stream, CodePort); err != nil {
					return err
				}
			} else if err := l.Accept(ev.Stream); err != nil {
				return err
			}
		case EventRefused, EventRedial:
			a.gone, a.ready, a.parked = true, false, false
			if ev.Kind == EventRefused {
				m.opens++
			}
			m.redials++
		case EventMoved:
			a.moved = true
		case EventReleased:
			if err := m.unused(e, ev.Stream.rx.Ring()); err != nil {
				return err
			}
			if ev.Stream.opened {
				ev.Stream.ignored = true // its id is no longer its own
			}
			if err := m.grant(ev.Stream.id); err != nil && !errors.Is(err, ErrGoingAway) {
				return err
			}
		case EventPlaces:
			m.wants = false
		case EventAborted:
			if m.told = true; !errors.Is(ev.Err, RuleRecall) {
				return failf("another rule is told: %v", ev.Err)
			}
		}
		if a != nil && a.ready && a.s.Ended() && a.s.rx.Buffered() == 0 {
			a.eof, a.ready = true, false
			if err := m.checkEnd(a); err != nil {
				return err
			}
		}
		if err := m.reclaim(e, a); err != nil {
			return err
		}
		if a != nil && a.s.Quiet() && !a.gone {
			if err := m.unused(e, a.s.rx.Ring()); err != nil {
				return err
			}
		}
	}
}

// unused checks that the peer is writing nothing to a ring of end e that is given back.
func (m *model) unused(e int, r Ring) error {
	for i := range m.apps[1-e] {
		if p := m.apps[1-e][i].ahead; p.Len > 0 && p.Ring == r {
			return failf("a ring is given back while bytes are written to it")
		}
	}
	return nil
}

// reclaim gives rings back that nobody needs.
func (m *model) reclaim(e int, a *app) error {
	if a == nil || a.s == nil {
		return nil
	}
	if a.s.Ended() && a.s.rx.Buffered() == 0 {
		if err := m.unused(e, a.s.rx.Ring()); err != nil {
			return err
		}
	}
	for {
		old, ok := a.s.rx.Reclaim()
		if !ok {
			return nil
		}
		if err := m.unused(e, old); err != nil {
			return err
		}
		r := &m.rings[old.RKey]
		for _, b := range r.bytes {
			if b != 0 && !a.s.drops {
				return failf("a ring with unread bytes is given back")
			}
		}
		r.gone = true
	}
}

// place writes one piece ahead of its announcement, where that may be.
func (m *model) place(e int, a *app) error {
	if a.ahead = m.lanes[e].Reserve(a.s, min(m.p.chunk, a.left)); a.ahead.Len == 0 {
		return m.write(e, a)
	}
	return m.put(a.ahead, a.wrote)
}

// write hands in one piece, and reports whether anything changed.
func (m *model) write(e int, a *app) error {
	n := min(m.p.chunk, a.left)
	var p Span
	var msg Message
	var ok bool
	if ahead := a.ahead; ahead.Len > 0 {
		n = int(ahead.Len)
		clear(m.rings[ahead.Ring.RKey].bytes[ahead.Off:][:ahead.Len]) // post puts them there
	}
	err := m.do(e, atData, func() (err error) {
		p, msg.Bell, ok, err = m.lanes[e].Data(a.s, n, true)
		return err
	})
	if ahead := a.ahead; ahead.Len > 0 {
		if err == nil && ok && p != ahead {
			return failf("bytes were written ahead to another place")
		}
		a.ahead = Span{}
		m.lanes[e].Unreserve(a.s)
	}
	switch {
	case errors.Is(err, ErrStream):
		a.left, a.partial = 0, true
		return nil
	case err != nil:
		return err
	case !ok:
		a.parked = true
		return nil
	}
	offset := a.wrote
	a.wrote += uint64(p.Len)
	payload := a.s.Payload(p, n)
	a.left -= payload
	return m.post(e, packet{Message: msg, span: p, offset: offset, life: a.s.port, frame: m.frame(a, payload)})
}

// read takes what lies together.
func (m *model) read(e int, a *app) error {
	p := a.s.rx.Readable()
	r := &m.rings[p.Ring.RKey]
	if err := m.unframe(a, r, &p); err != nil {
		return err
	}
	for i := range uint64(p.Len) {
		at := &r.bytes[uint64(p.Off)+i]
		if *at != uint16(a.read+i)+1 {
			return failf("a byte is lost, doubled or out of order")
		}
		*at = 0
	}
	a.read += uint64(p.Len)
	a.ready = a.s.rx.Buffered() > uint64(p.Len)
	return m.do(e, atRead, func() error {
		if err := m.lanes[e].Consume(a.s, int(p.Len)); err != nil {
			return err
		}
		if a.eof = a.s.Ended() && a.s.rx.Buffered() == 0; a.eof {
			if err := m.checkEnd(a); err != nil {
				return err
			}
		}
		return m.reclaim(e, a)
	})
}
