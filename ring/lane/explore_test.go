package lane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// An action is one thing that may happen next.
type action struct {
	name string
	end  int
	life int
	do   func(m *model) error
}

func (a action) String() string { return fmt.Sprintf("%s %d/%d", a.name, a.end, a.life) }

// actions returns all that may happen.
func (m *model) actions() (out []action) {
	add := func(name string, e, life int, do func(m *model) error) {
		out = append(out, action{name, e, life, do})
	}
	if m.aborted > 0 { // all that still matters is what the other end hears
		if e := 2 - m.aborted; len(m.wire[e]) > 0 && !m.sleep[e] && !m.told {
			add("arrive", e, 0, func(m *model) error { return m.arrive(e) })
		}
		return out
	}
	for e := range 2 {
		if m.p.aborts {
			add("abort", e, 0, func(m *model) error { return m.abort(e) })
		}
		if len(m.wire[e]) > 0 && !m.sleep[e] {
			add("arrive", e, 0, func(m *model) error { return m.arrive(e) })
		}
		if m.p.sleeps && len(m.wire[e]) == 0 && !m.sleep[e] {
			add("sleep", e, 0, func(m *model) error { m.sleep[e] = true; return nil })
		}
		if m.room(e) && m.p.pumpsLater && m.due(e) {
			add("send", e, 0, func(m *model) error { _, err := m.next(e); return err })
		}
		for life := range m.apps[e] {
			m.appActions(e, life, add)
		}
	}
	if m.opens > 0 && !m.wants && m.wentAway < 2 {
		add("open", 0, 0, (*model).open)
	}
	if m.p.goAway && m.wentAway == 0 {
		add("goaway", 1, 0, func(m *model) error { m.wentAway = 1; m.lanes[1].GoAway(); return nil })
	}
	if m.wentAway == 1 && (m.p.hurry || m.lanes[1].goAway.stopped) {
		add("final", 1, 0, func(m *model) error { m.wentAway = 2; m.lanes[1].GoAwayFinal(); return nil })
	}
	if m.p.recall && !m.recalled {
		add("recall", 1, 0, func(m *model) error { m.recalled = true; m.lanes[1].Recall(1); return nil })
	}
	return out
}

// abort ends the lane at end e.
func (m *model) abort(e int) error {
	m.aborted = e + 1
	slots := &m.lanes[e].slots
	may := slots.Free() > 0 && slots.hasPlace()
	m.lanes[e].Abort(RuleRecall)
	sent, err := m.next(e)
	if err == nil && sent != may {
		return failf("ABORT may be sent: %v, and is: %v", may, sent)
	}
	m.told = m.told || !sent
	return err
}

// due reports whether end e would send something.
func (m *model) due(e int) bool {
	if m.trial == nil {
		m.trial = &model{}
	}
	c := m.cloneInto(m.trial)
	c.breach = nil
	_, ok := c.lanes[e].Next()
	return ok
}

func (m *model) open() error {
	size := m.p.rings[0]
	l := m.lanes[0]
	if l.places.len() == 0 && !l.goAway.announced {
		m.wants = true
		l.Want(1)
		return nil
	}
	s, err := l.Open(m.ring(size), m.life+1)
	if err == ErrGoingAway {
		m.opens = 0
		return nil
	}
	if err != nil {
		return err
	}
	m.life++
	m.opens--
	*m.app(0, s) = app{s: s, left: m.p.write[0]}
	return nil
}

// reads reports whether the application of this end reads the stream.
func (m *model) reads(e, life int) bool {
	return m.p.unread != e+1 && (m.p.silent != life || e == 0)
}

// appActions are those of the application of one stream.
func (m *model) appActions(e, life int, add func(string, int, int, func(m *model) error)) {
	a := &m.apps[e][life]
	if a.s != nil && a.ahead.Len > 0 && m.room(e) {
		add("announce", e, life, func(m *model) error { return m.write(e, &m.apps[e][life]) })
	}
	if a.s == nil || a.gone || a.done && a.eof {
		return
	}
	if e == 1 && !a.s.decided && a.s.todo&todoAccepted == 0 {
		return
	}
	switch {
	case a.left == 0 || a.parked || a.done || a.ahead.Len > 0 || !m.room(e):
	case m.p.ahead:
		add("place", e, life, func(m *model) error { return m.place(e, &m.apps[e][life]) })
	default:
		add("write", e, life, func(m *model) error { return m.write(e, &m.apps[e][life]) })
	}
	if a.ready && a.s.rx.Buffered() > 0 && m.reads(e, life) && !a.s.drops {
		add("read", e, life, func(m *model) error { return m.read(e, &m.apps[e][life]) })
	}
	if a.offers < len(m.p.offers[e]) && !a.s.rx.Offering() && !a.done && !a.s.Ended() && a.s.opened {
		add("offer", e, life, func(m *model) error {
			a := &m.apps[e][life]
			size := m.p.offers[e][a.offers]
			a.offers++
			if err := m.lanes[e].Offer(a.s, m.ring(size)); err != nil && err != ErrStream {
				return err
			}
			return nil
		})
	}
	switch {
	case m.p.patient && m.moves(life):
	case !a.done && (a.left == 0 || m.p.impatient) && (m.p.finish[e] != withFIN || a.s.finished() && a.eof):
		add("end", e, life, func(m *model) error { return m.endApp(e, life) })
	case !a.s.finished() && (a.left == 0 || a.ahead.Len > 0 && m.p.impatient) && m.p.finish[e] == withFIN:
		add("fin", e, life, func(m *model) error { return m.lanes[e].CloseWrite(m.apps[e][life].s) })
	}
}

// moves reports whether a ring of the stream has still to be offered, or moved to.
func (m *model) moves(life int) bool {
	for e := range 2 {
		if life >= len(m.apps[e]) || m.apps[e][life].s == nil ||
			m.apps[e][life].offers < len(m.p.offers[e]) || m.apps[e][life].s.rx.Offering() {
			return true
		}
	}
	return false
}

// endApp ends a stream as the plan has it.
func (m *model) endApp(e, life int) error {
	a := &m.apps[e][life]
	a.done = true
	if a.left > 0 || !a.eof {
		a.partial = true
	}
	a.left, a.eof = 0, true
	if m.p.finish[e] == withReset {
		m.lanes[e].Reset(a.s, CodeReset)
	} else {
		m.lanes[e].Close(a.s)
	}
	return nil
}

// check looks at a model in which nothing can happen any more.
func (m *model) check() error {
	if m.aborted > 0 {
		if !m.told {
			return failf("the end that lied is not told")
		}
		return nil
	}
	if len(m.wire[0])+len(m.wire[1]) > 0 {
		return failf("an end sleeps over what has arrived")
	}
	for e := range 2 {
		for life := 1; life < len(m.apps[e]); life++ {
			a := &m.apps[e][life]
			if e == 0 && a.s != nil && a.s.ignored && !a.gone {
				return failf("a stream above GOAWAY is not dialled again")
			}
			if a.s == nil || a.gone || m.p.unread != 0 || e == 1 && a.s.ignored && !a.s.decided {
				continue
			}
			if m.p.silent == life {
				continue
			}
			other := app{}
			if life < len(m.apps[1-e]) {
				other = m.apps[1-e][life]
			}
			if a.left > 0 {
				return failf("deadlock: bytes cannot be sent")
			}
			if !a.done {
				return failf("deadlock: a stream does not end")
			}
			if !other.partial && !a.partial && a.read != other.wrote {
				return failf("bytes are lost at the end")
			}
			if st := a.s.state(); st != stateClosed {
				return failf("a stream is left %v", st)
			}
		}
	}
	if m.lanes[1].Recalled() != 0 {
		return failf("a place that was asked back is kept")
	}
	if m.opens > 0 && m.wentAway == 0 {
		return failf("deadlock: a dial waits for ever")
	}
	if m.wentAway == 0 && m.p.unread == 0 && m.p.silent == 0 && (m.lanes[1].Streams() != m.p.places || m.lanes[0].Streams() != m.p.places) {
		return failf("ids are lost")
	}
	return nil
}

// search takes a model every way there is, and returns how many states it has, and what is
// wrong with how one came about.
func search(p *plan, b *breach, limit int) (states int, trace []string, err error) {
	seen := map[uint64]struct{}{}
	var done []*model // whose memory the next ones take
	var visit func(m *model) error
	visit = func(m *model) error {
		h := m.hash()
		if _, ok := seen[h]; ok {
			return nil
		}
		seen[h] = struct{}{}
		if len(seen) > limit {
			return errLimit
		}
		acts := m.actions()
		if len(acts) == 0 {
			return m.check()
		}
		for _, a := range acts {
			c := &model{}
			if n := len(done); n > 0 {
				c, done = done[n-1], done[:n-1]
			}
			m.cloneInto(c)
			err := a.do(c)
			if err == nil {
				err = c.events(a.end)
			}
			if err == nil {
				err = c.settle()
			}
			if err == nil {
				err = visit(c)
			}
			if err != nil {
				trace = append(trace, a.String())
				return err
			}
			done = append(done, c)
		}
		return nil
	}
	m, err := newModel(p)
	if err == nil {
		m.breach = b
		err = visit(m)
	}
	slices.Reverse(trace)
	return len(seen), trace, err
}

// walk takes a model one way, chosen by a seed.
func walk(p *plan, b *breach, seed uint64) (trace []string, err error) {
	r := rand.New(rand.NewPCG(seed, 0x6c616e65))
	m, err := newModel(p)
	if err != nil {
		return nil, err
	}
	m.breach = b
	for {
		acts := m.actions()
		if len(acts) == 0 {
			return trace, m.check()
		}
		a := acts[r.IntN(len(acts))]
		trace = append(trace, a.String())
		if err = a.do(m); err == nil {
			if err = m.events(a.end); err == nil {
				err = m.settle()
			}
		}
		if err != nil {
			return trace, err
		}
	}
}

// seedVar replays one seed of TestModelWalks.
const seedVar = "LANE_MODEL_SEED"

var errLimit = failf("more states than the test has time for")

// last returns the end of a trace.
func last(trace []string) string { return strings.Join(trace[max(len(trace)-60, 0):], "\n") }

// hasher is a hash of all that the future of a model depends on.
type hasher uint64

func (h *hasher) add(values ...uint64) {
	for _, v := range values {
		x := (uint64(*h) ^ v) * 0x9e3779b97f4a7c15
		*h = hasher(x ^ x>>29)
	}
}

func (h *hasher) bits(values ...bool) {
	n := uint64(1)
	for _, v := range values {
		n <<= 1
		if v {
			n |= 1
		}
	}
	h.add(n)
}

func (h *hasher) stream(s *Stream) {
	if s == nil {
		h.add(0)
		return
	}
	h.add(uint64(s.id)<<32|uint64(s.port)<<16|uint64(s.todo), uint64(s.number)<<16|uint64(s.code))
	h.bits(s.placed, s.opened, s.decided, s.finSent, s.finGot, s.endSent, s.endGot, s.refused, s.ignored, s.drops, s.broken, s.queued, s.credits, s.waits, s.listed, s.ahead)
	h.add(s.tx.start, s.tx.sent, s.tx.credited, uint64(s.tx.ring.RKey)<<32|uint64(s.tx.offered.RKey), uint64(s.tx.offered.Size))
	h.add(uint64(len(s.rx.older)), s.rx.received, s.rx.consumed, s.rx.reported, uint64(s.rx.offered.RKey), uint64(s.rx.offered.Size))
	for _, r := range append(s.rx.older[:len(s.rx.older):len(s.rx.older)], s.rx.ring) {
		h.add(uint64(r.RKey), r.start)
	}
	if s.sums != nil {
		h.add(uint64(s.sums.sent), uint64(s.sums.end), uint64(s.sums.reader.Sum()), uint64(s.sums.reader.Left()))
		h.bits(s.sums.ended)
	}
}

func (m *model) hash() uint64 {
	h := hasher(1)
	for i, l := range m.lanes {
		s := &l.slots
		h.add(uint64(s.free), uint64(s.arrived), uint64(s.posted), uint64(s.pending), uint64(s.unmarked), uint64(l.sent), uint64(l.got), uint64(l.opens))
		for k := range s.uses {
			u := s.used[(s.head+k)%s.depth]
			h.add(uint64(u.stream), uint64(u.n))
			h.bits(u.record)
		}
		for _, list := range [][]*Stream{l.table, l.places.all(), l.records.all(), l.credits.all(), l.waiting.all()} {
			h.add(uint64(len(list)))
			for _, s := range list {
				h.stream(s)
			}
		}
		for _, list := range [][]Record{l.grants.all(), l.control.all()} {
			h.add(uint64(len(list)))
			for _, r := range list {
				h.add(uint64(r.Kind), uint64(r.Stream), uint64(r.Stage), uint64(r.Opens))
			}
		}
		h.add(uint64(l.want), uint64(l.recall), uint64(l.asked), uint64(l.granted), uint64(l.goAway.last), uint64(l.seen))
		h.bits(l.turn, l.goAway.announced, l.goAway.stopped, l.goAway.final, l.abort.sent, m.sleep[i])
		h.add(uint64(len(m.wire[i])))
		for _, p := range m.wire[i] {
			h.add(uint64(p.Imm), uint64(p.Record.Kind), uint64(p.Record.Stream), uint64(p.Record.Opens), uint64(p.span.Off), uint64(p.span.Ring.RKey), uint64(p.life))
		}
		h.add(uint64(len(m.apps[i])))
		for k := range m.apps[i] {
			a := &m.apps[i][k]
			h.stream(a.s)
			h.add(uint64(a.left), a.wrote, a.read, a.framed[0], a.framed[1], uint64(a.offers), uint64(a.ahead.Len))
			h.bits(a.parked, a.ready, a.done, a.eof, a.gone, a.partial, a.moved)
		}
	}
	for i := range m.rings {
		h.bits(m.rings[i].gone)
	}
	h.add(uint64(m.opens), uint64(m.life), uint64(m.redials), uint64(m.wentAway))
	h.add(uint64(m.aborted))
	h.bits(m.wants, m.recalled, m.refused, m.told)
	return uint64(h)
}
