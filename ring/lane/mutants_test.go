package lane

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// streams calls f with each stream of end e.
func (m *model) streams(e int, f func(s *Stream)) {
	for _, s := range m.lanes[e].table {
		if s != nil && s.opened {
			f(s)
		}
	}
}

// drop takes the events of a kind away.
func (l *Lane) dropEvents(kind EventKind) {
	for range l.events.len() {
		if e := l.events.pop(); e.Kind != kind {
			l.events.push(e)
		}
	}
}

// forgetAhead has streams send todo although bytes are written ahead.
func (m *model) forgetAhead(e int, at spot, todo uint16) {
	if at == atNext {
		m.streams(e, func(s *Stream) {
			if s.todo&todo != 0 && s.ahead {
				m.lanes[e].Unreserve(s)
			}
		})
	}
}

// Each breach breaks one rule of the protocol in one plan.
var breaches = []breach{
	{name: "a sender ignores the window", plan: "window", want: "an unread byte is overwritten",
		before: func(m *model, e int, at spot) {
			if at == atData {
				m.streams(e, func(s *Stream) { s.tx.credited = s.tx.sent &^ (Granule - 1) })
			}
		}},
	{name: "an owner credits what is not read", plan: "window", want: RuleCredit.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if d, err := ParseDoorbell(p.Imm); err == nil && d.Type == TypeCredit {
				d.N = uint32(m.apps[e][p.life].s.rx.received-m.apps[e][p.life].s.rx.consumed)/Granule + d.N
				p.Imm = d.Imm()
			}
			return false
		}},
	{name: "an owner forgets a credit", plan: "window", want: "deadlock: bytes cannot be sent",
		after: func(m *model, e int, at spot) {
			if at == atRead {
				m.streams(e, func(s *Stream) { s.rx.reported = s.rx.consumed &^ (Granule - 1) })
			}
		}},
	{name: "a credit wakes nobody", plan: "window", want: "deadlock: bytes cannot be sent",
		after: func(m *model, e int, at spot) {
			if at == atArrive {
				m.lanes[e].dropEvents(EventWritable)
			}
		}},
	{name: "a credit comes twice", plan: "window", want: RuleCredit.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if d, err := ParseDoorbell(p.Imm); err == nil && d.Type == TypeCredit {
				m.wire[1-e] = append(m.wire[1-e], *p)
			}
			return false
		}},
	{name: "data comes twice", plan: "window", want: RuleOverflow.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if p.span.Len > 0 && p.offset == 0 {
				m.wire[1-e] = append(m.wire[1-e], *p)
			}
			return false
		}},
	{name: "data is lost", plan: "half-closes", want: RuleTotal.Error(),
		packet: func(m *model, e int, p *packet) bool { return p.span.Len > 0 }},
	{name: "a record is lost", plan: "half-closes", want: RuleNumber.Error(),
		packet: func(m *model, e int, p *packet) bool { return e == 0 && p.Record.Kind == KindFIN }},
	{name: "the last of a burst is not solicited", plan: "window, asleep", want: "an end sleeps over what has arrived",
		packet: func(m *model, e int, p *packet) bool {
			p.Solicited = p.Solicited && p.span.Len == 0
			return false
		}},
	{name: "credits are not solicited", plan: "window, asleep", want: "an end sleeps over what has arrived",
		packet: func(m *model, e int, p *packet) bool {
			d, err := ParseDoorbell(p.Imm)
			p.Solicited = p.Solicited && (err != nil || d.Type != TypeCredit)
			return false
		}},
	{name: "only the last of a burst is solicited", plan: "slots, asleep", want: "an end sleeps over what has arrived",
		packet: func(m *model, e int, p *packet) bool {
			p.Solicited = p.Solicited && (p.span.Len == 0 || p.offset == uint64(m.p.write[e])-1)
			return false
		}},
	{name: "returned slots wake nobody", plan: "slots, asleep", want: "deadlock: bytes cannot be sent",
		after: func(m *model, e int, at spot) {
			if at == atArrive {
				m.lanes[e].dropEvents(EventWritable)
			}
		}},
	{name: "a share that is never lent", plan: "slots, asleep", want: "deadlock: bytes cannot be sent",
		before: func(m *model, e int, at spot) {
			if l := m.lanes[e]; at == atData && int(l.slots.streams.At(1)) >= l.slots.share() {
				l.slots.posted += 1 << 20 // Data says no, as for a return that is due
			}
		},
		after: func(m *model, e int, at spot) {
			if l := m.lanes[e]; at == atData && l.slots.posted >= 1<<20 {
				l.slots.posted -= 1 << 20
			}
		}},
	{name: "a sender moves and does not tell", plan: "growth", want: "a byte is lost, doubled or out of order",
		after: func(m *model, e int, at spot) {
			if at == atArrive {
				m.streams(e, func(s *Stream) {
					if s.tx.offered.Size != 0 && s.tx.sent > 0 {
						s.tx.move()
						s.todo &^= todoMoved
					}
				})
			}
		}},
	{name: "a sender moves later than it tells", plan: "growth", want: "a byte is lost, doubled or out of order",
		packet: func(m *model, e int, p *packet) bool {
			if p.span.Len > 0 && m.rings[0].bytes != nil {
				m.streams(e, func(s *Stream) {
					if s.tx.start > 0 && s.tx.sent > 0 && p.offset == s.tx.start {
						p.span.Ring.RKey--
						p.span.Off = 0
						for i := range p.span.Len {
							m.rings[p.span.Ring.RKey].bytes[i] = 0
						}
					}
				})
			}
			return false
		}},
	{name: "credits of the old ring are forgotten", plan: "growth", want: RuleCredit.Error(),
		after: func(m *model, e int, at spot) {
			if at == atNext {
				m.streams(e, func(s *Stream) {
					if s.tx.start > 0 && s.tx.credited < s.tx.start {
						s.tx.credited = (s.tx.start + Granule - 1) &^ (Granule - 1)
					}
				})
			}
		}},
	{name: "a ring is given back when the next is offered", plan: "growth", want: "in a ring that was given back",
		after: func(m *model, e int, at spot) {
			m.streams(e, func(s *Stream) {
				if s.rx.Offering() {
					m.rings[s.rx.Ring().RKey].gone = true
				}
			})
		}},
	{name: "a ring is given back with unread bytes", plan: "growth", want: "a ring with unread bytes is given back",
		after: func(m *model, e int, at spot) {
			if at == atArrive {
				m.streams(e, func(s *Stream) {
					if next := s.rx.afterOldest(); next != nil && s.rx.consumed < next.start {
						next.start = s.rx.consumed
					}
				})
			}
		}},
	{name: "a sender with nothing to say does not move", plan: "an idle stream shrinks", want: "deadlock: a stream does not end",
		before: func(m *model, e int, at spot) {
			if at == atNext {
				m.streams(e, func(s *Stream) {
					if m.app(e, s).left == 0 {
						s.todo &^= todoMoved
					}
				})
			}
		}},
	{name: "a sender moves while it writes ahead", plan: "ahead, growth", want: "bytes were written ahead to another place",
		before: func(m *model, e int, at spot) { m.forgetAhead(e, at, todoMoved) }},
	{name: "a stream ends while it writes ahead", plan: "ahead, moves and resets", want: "is given back while bytes are written to it",
		before: func(m *model, e int, at spot) { m.forgetAhead(e, at, todoClose|todoReset) }},
	{name: "a direction ends while it writes ahead", plan: "ahead, moves and resets", want: "is given back while bytes are written to it",
		before: func(m *model, e int, at spot) { m.forgetAhead(e, at, todoFIN) }},
	{name: "a place is released while bytes are written ahead", plan: "ahead, refusal", want: "is given back while bytes are written to it",
		before: func(m *model, e int, at spot) { m.forgetAhead(e, at, todoRelease) }},
	{name: "the ABORT of a lane is lost", plan: "a lie", want: "the end that lied is not told",
		packet: func(m *model, e int, p *packet) bool { return p.Record.Kind == KindAbort }},
	{name: "the ABORT of a lane wakes nobody", plan: "a lie", want: "the end that lied is not told",
		packet: func(m *model, e int, p *packet) bool {
			p.Solicited = p.Solicited && p.Record.Kind != KindAbort
			return false
		}},
	{name: "an end is not answered", plan: "reuse", want: "a stream is left closing",
		after: func(m *model, e int, at spot) {
			if e == 1 {
				m.streams(e, func(s *Stream) {
					if s.endGot && !s.endSent {
						s.todo &^= todoClose
					}
				})
			}
		}},
	{name: "an id is released before the peer has ended", plan: "reuse", want: RuleNotOpen.Error(),
		after: func(m *model, e int, at spot) {
			if e == 0 && at == atNext {
				m.streams(e, func(s *Stream) {
					if s.endSent && s.decided && !s.endGot {
						s.endGot = true
						m.lanes[e].release(s)
					}
				})
			}
		}},
	{name: "an id is granted again before the dialer has ended", plan: "reuse", want: RuleNotOpen.Error(),
		after: func(m *model, e int, at spot) {
			if e == 1 {
				m.streams(e, func(s *Stream) {
					if s.endSent && !s.endGot && m.lanes[e].table.At(s.id) == s {
						m.lanes[e].table.Set(s.id, nil)
						_ = m.grant(s.id)
					}
				})
			}
		}},
	{name: "the dialer takes a place before it is granted again", plan: "reuse", want: RulePlace.Error(),
		after: func(m *model, e int, at spot) {
			if l := m.lanes[0]; e == 0 && at == atNext && l.table.At(1) == nil && l.places.len() == 0 {
				s := &Stream{id: 1, placed: true, tx: newSender(Ring{Size: 256})}
				l.table.Set(1, s)
				l.places.push(s)
			}
		}},
	{name: "a dialer keeps a place that was asked back", plan: "recall, one", want: "a place that was asked back is kept",
		after: func(m *model, e int, at spot) {
			for _, s := range m.lanes[0].table {
				if s != nil && !s.opened && s.todo&todoRelease != 0 {
					s.todo = 0
					m.lanes[0].places.push(s)
				}
			}
		}},
	{name: "no id is released", plan: "reuse", want: "deadlock: a dial waits for ever",
		after: func(m *model, e int, at spot) { m.lanes[1].dropEvents(EventReleased) }},
	{name: "bytes follow CLOSE", plan: "reuse", want: RuleTotal.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if w := m.wire[1-e]; p.Record.Kind == KindClose && len(w) > 0 && w[len(w)-1].span.Len > 0 {
				w[len(w)-1], *p = *p, w[len(w)-1]
				p.span = Span{} // it is in memory already
			}
			return false
		}},
	{name: "a byte overtakes OPEN", plan: "reuse", want: RuleNotOpen.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if w := m.wire[1-e]; p.span.Len > 0 && len(w) > 0 && w[len(w)-1].Record.Kind == KindOpen {
				w[len(w)-1], *p = *p, w[len(w)-1]
			}
			return false
		}},
	{name: "a refused stream is not released", plan: "refusal", want: "deadlock: a dial waits for ever",
		after: func(m *model, e int, at spot) {
			m.streams(0, func(s *Stream) {
				if s.refused {
					s.todo &^= todoRelease
				}
			})
		}},
	{name: "ACCEPTED counts a stream that was not opened", plan: "GOAWAY, one", want: RuleNotOpen.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if p.Record.Kind == KindAccepted {
				p.Record.Count++
			}
			return false
		}},
	{name: "GOAWAY counts an open that was not seen", plan: "GOAWAY in a hurry, one", want: "a stream is left closing",
		before: func(m *model, e int, at spot) {
			for i := range m.lanes[1].control.all() {
				if r := &m.lanes[1].control.all()[i]; r.Stage == StageFinal && r.Opens == 0 {
					r.Opens = m.lanes[0].opens
				}
			}
		}},
	{name: "GOAWAY counts an open too few", plan: "GOAWAY in a hurry, one", want: RuleOpenNumber.Error(),
		before: func(m *model, e int, at spot) {
			for i := range m.lanes[1].control.all() {
				if r := &m.lanes[1].control.all()[i]; r.Stage == StageFinal {
					r.Opens = 0
				}
			}
		}},
	{name: "streams above GOAWAY are not dialled again", plan: "GOAWAY in a hurry, one", want: "a stream above GOAWAY is not dialled again",
		after: func(m *model, e int, at spot) { m.lanes[0].dropEvents(EventRedial) }},
	{name: "the dialer opens after GOAWAY", plan: "GOAWAY, one", want: RuleGoAway.Error(),
		after: func(m *model, e int, at spot) {
			if g := &m.lanes[0].goAway; g.announced && m.lanes[0].control.len() == 0 && m.lanes[0].table.At(2) == nil {
				s := &Stream{id: 2, port: 9, placed: true, tx: newSender(Ring{Size: 256}), rx: newReceiver(Ring{Size: 256})}
				m.lanes[0].table.Set(2, s)
				m.lanes[0].queue(s, todoOpen)
			}
		}},
	{name: "a place that was asked back is taken as well", plan: "recall, one", want: RuleNotOpen.Error(),
		after: func(m *model, e int, at spot) {
			l := m.lanes[0]
			for _, s := range l.table {
				if s != nil && s.todo&todoRelease != 0 && !s.opened && l.places.len() == 0 {
					l.places.push(s)
				}
			}
		}},
}

// TestModelFindsBreaches breaks each rule on purpose: the explorer must name it.
func TestModelFindsBreaches(t *testing.T) {
	for i := range breaches {
		b := &breaches[i]
		t.Run(b.name, func(t *testing.T) {
			n, trace, err := search(planCalled(t, b.plan), b, 200_000)
			require.Error(t, err, "%d states and nothing found", n)
			require.False(t, errors.Is(err, errLimit), "%d states and nothing found", n)
			assert.ErrorContains(t, err, b.want, "after\n%s", last(trace))
			t.Logf("after %d states: %v", n, err)
		})
	}
}
