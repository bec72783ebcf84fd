package lane

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script hands out the bytes of a fuzzer's input; beyond its end, 0.
type script struct{ b []byte }

func (s *script) next() int {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return int(v)
}

// hostile drives one end of a lane by a script: what the peer says is anything, and mostly
// something that fits; what the application does is anything, too.
type hostile struct {
	t    testing.TB
	l    *Lane
	s    *script
	mine []*Stream // that the application has
	held int       // receives that it has not posted again

	reserved map[*Stream]Span

	broken map[Rule]bool // rules of streams
}

func newHostile(t testing.TB, s *script) *hostile {
	n := s.next()
	l, err := New(Config{Role: Role(n%2 + 1), Epoch: 7, Streams: 4, Receives: 32, PeerReceives: 32, Places: 8, Checksums: n&2 != 0})
	require.NoError(t, err)
	return &hostile{t: t, l: l, s: s, broken: map[Rule]bool{}, reserved: map[*Stream]Span{}}
}

// open is a stream that the peer may speak of, 0 if there is none.
func (h *hostile) open() ID {
	first := h.s.next()
	for i := range 4 {
		if s := h.l.table.At(ID((first+i)%4 + 1)); s != nil && s.opened && !s.endGot {
			return s.id
		}
	}
	return 0
}

// record makes a record that is right but for what the script says, and of that kind if it is
// not 0.
func (h *hostile) record(kind Kind) []byte {
	r := Record{Kind: kind, Epoch: 7, Number: h.l.got}
	if kind == 0 {
		r.Kind = Kind(h.s.next()%int(numKinds-1) + 1)
	}
	has := kinds[r.Kind].has
	if has&hasStream != 0 {
		r.Stream = ID(h.s.next()%5 + 1)
		if id := h.open(); id != 0 && kind != 0 {
			r.Stream = id
		}
	}
	if has&hasCount != 0 {
		r.Count = uint16(h.s.next()%5 + 1)
	}
	if has&hasRing != 0 {
		r.Ring = Ring{Addr: uint64(h.s.next()), RKey: 1, Size: MinRing << (h.s.next() % 3)}
	}
	if has&hasTotal != 0 {
		r.Total = uint64(h.s.next())
		if s := h.l.table.At(r.Stream % 5); s != nil && r.Total%2 == 0 {
			r.Total = s.rx.received
		}
	}
	if has&hasSum != 0 && h.l.cfg.Checksums {
		r.Sum = uint32(h.s.next())
	}
	if has&hasOpens != 0 {
		r.Opens = h.l.opens + uint32(h.s.next()%3)
	}
	if has&hasPort != 0 {
		r.Port = uint16(h.s.next() + 1)
	}
	if has&hasCode != 0 {
		r.Code = Code(h.s.next()%4 + 1)
	}
	if has&hasStage != 0 {
		r.Stage = Stage(h.s.next()%3 + 1)
	}
	b := make([]byte, RecordLen)
	require.NoError(h.t, r.Put(b))
	switch n := h.s.next(); { // now and then, not right
	case n >= 216:
		b[h.s.next()%RecordLen] = byte(h.s.next() % 32)
	case n >= 212:
		return b[:n%RecordLen]
	case n >= 208 && r.Kind == KindOpen:
		b[48], b[49] = 0, 0
	}
	return b
}

// lie is what the peer says next.
func (h *hostile) lie() error {
	h.held++
	n := h.s.next() % 8
	switch n {
	case 0: // anything
		return h.l.Arrive(uint32(h.s.next())<<24|uint32(h.s.next())<<16|uint32(h.s.next())<<8|uint32(h.s.next()), nil)
	case 1, 2:
		d := Doorbell{Type: TypeData, Stream: ID(h.s.next()%5 + 1), N: uint32(h.s.next() + 1)}
		if id := h.open(); id != 0 {
			d.Stream = id
		}
		if s := h.l.table.At(d.Stream % 5); n == 2 && s != nil && s.rx.ring.Size > 0 { // all that fits
			d.N = uint32(s.rx.ring.Size) - uint32(s.rx.Buffered()%MinRing)
		}
		if n == 2 && h.l.cfg.Checksums {
			d.N = uint32(ring.FrameLen(int(d.N)) - ring.FrameAlign)
		}
		return h.l.Arrive(d.Imm(), nil)
	case 3:
		return h.l.Arrive(Doorbell{Type: TypeCredit, Stream: ID(h.s.next()%5 + 1), N: uint32(h.s.next()%4 + 1)}.Imm(), nil)
	case 4:
		return h.l.Arrive(Doorbell{Type: TypeSlots, N: uint32(h.s.next()%16 + 1)}.Imm(), nil)
	}
	kind := Kind(0)
	if n == 7 {
		kind = [...]Kind{KindRing, KindRing, KindMoved, KindFIN}[h.s.next()%4]
	}
	return h.l.Arrive(Doorbell{Type: TypeControl}.Imm(), h.record(kind))
}

// stream is one that the application has.
func (h *hostile) stream() *Stream {
	if len(h.mine) == 0 {
		return nil
	}
	return h.mine[h.s.next()%len(h.mine)]
}

// act is what the application does next. Its errors are its own matter.
func (h *hostile) act() {
	l, n := h.l, h.s.next()%16
	s := h.stream()
	switch n {
	case 0:
		if s, err := l.Open(Ring{RKey: 9, Size: MinRing << (h.s.next() % 3)}, uint16(h.s.next()+1)); err == nil {
			h.mine = append(h.mine, s)
		}
	case 1:
		_ = l.Grant(ID(h.s.next()%5), h.s.next()%5, Ring{RKey: 8, Size: MinRing}, 40000)
	case 2:
		l.Want(h.s.next())
		l.Recall(h.s.next())
	case 3:
		if h.s.next() == 255 {
			l.Abort(Rule(h.s.next()))
		}
	case 4:
		if h.s.next() > 250 {
			l.GoAway()
		}
		if h.s.next() > 252 {
			l.GoAwayFinal()
		}
	}
	if s == nil {
		return
	}
	switch n {
	case 5:
		_ = l.Accept(s)
	case 6:
		_ = l.Refuse(s, Code(h.s.next()%6))
	case 9:
		if s.ahead {
			l.Unreserve(s)
			break
		}
		p := l.Reserve(s, h.s.next()+1)
		require.LessOrEqual(h.t, p.Off+p.Len, p.Ring.Size)
		h.reserved[s] = p
	case 7, 8:
		p, m, ok, err := l.Data(s, h.s.next()+1, h.s.next()%2 == 0)
		if err == nil && ok {
			require.LessOrEqual(h.t, p.Off+p.Len, p.Ring.Size)
			if at := h.reserved[s]; s.ahead {
				require.Equal(h.t, Span{at.Ring, at.Off, p.Len}, p)
				l.Unreserve(s)
			}
			d, err := ParseDoorbell(m.Imm)
			require.NoError(h.t, err)
			require.Equal(h.t, Doorbell{TypeData, s.id, p.Len}, d)
			if h.l.cfg.Checksums {
				require.Zero(h.t, p.Len%ring.FrameAlign)
				require.Positive(h.t, s.Payload(p, 1))
				s.Summed(s.Sum() + p.Len)
			}
		}
	case 10, 11:
		if n := h.s.next(); l.Consume(s, n) != nil {
			_ = l.Consume(s, min(n, int(s.rx.Buffered())))
		}
		if err := s.CheckEnd(); err != nil {
			require.ErrorIs(h.t, err, ring.ErrChecksum)
			require.True(h.t, s.Ended() && s.rx.Buffered() == 0)
		}
		for {
			if _, ok := s.rx.Reclaim(); !ok {
				break
			}
		}
	case 12:
		_ = l.Offer(s, Ring{RKey: 7, Size: MinRing << (h.s.next() % 3)})
	case 13:
		_ = l.CloseWrite(s)
	case 14:
		l.Close(s)
	case 15:
		l.Reset(s, CodeReset)
	}
}

// step does one thing, and looks whether all is within its bounds.
func (h *hostile) step() error {
	var err error
	switch h.s.next() % 4 {
	case 0, 1:
		err = h.lie()
	case 2:
		h.act()
	case 3:
		require.NoError(h.t, h.l.Reposted(min(h.held, h.l.slots.arrived-h.l.slots.posted)))
		h.held = 0
		for {
			var ahead [5]bool
			for id, s := range h.l.table {
				ahead[id] = s != nil && s.ahead
			}
			m, ok := h.l.Next()
			if !ok {
				break
			}
			if m.Record.Kind != 0 {
				require.False(h.t, ahead[m.Record.Stream], "%v while bytes are written ahead", m.Record.Kind)
				b := make([]byte, RecordLen)
				require.NoError(h.t, m.Record.Put(b), "what is sent is right")
				require.Less(h.t, m.Place, uint32(h.l.cfg.Places))
			}
			_, bad := ParseDoorbell(m.Imm)
			require.NoError(h.t, bad)
		}
	}
	for {
		e, ok := h.l.Event()
		if !ok {
			break
		}
		if e.Kind == EventOpened {
			h.mine = append(h.mine, e.Stream)
		}
		if e.Kind == EventBroken {
			var detail *ProtocolError
			require.ErrorAs(h.t, e.Err, &detail)
			require.Equal(h.t, ScopeStream, detail.Rule.Scope())
			h.broken[detail.Rule] = true
		}
	}
	require.Empty(h.t, h.beyond())
	return err
}

// beyond names what is beyond its bounds.
func (h *hostile) beyond() string {
	l := h.l
	switch {
	case l.slots.free < 0 || l.slots.free > l.slots.depth:
		return "slots"
	case l.Streams() > 4 || l.grants.len()+l.control.len()+l.places.len() > 16:
		return "streams"
	case l.records.len()+l.credits.len()+l.waiting.len() > 64:
		return "queues"
	}
	for _, s := range l.table {
		if s == nil {
			continue
		}
		if u := s.unsound(); u != "" {
			return u
		}
		if s.rx.ring.Size == 0 {
			continue
		}
		p := s.rx.Readable()
		switch {
		case s.rx.consumed > s.rx.received || s.rx.Buffered() > MaxRings*MinRing<<2 || p.Off+p.Len > p.Ring.Size:
			return "ring"
		case s.tx.credited > s.tx.sent || s.tx.Free() < 0 || s.state() > stateClosed:
			return "stream"
		}
	}
	return ""
}

// run goes through the script. It goes on after a lie that ends the lane, as the machine
// has to bear that as well, and returns which rules were broken.
func (h *hostile) run() (rules map[Rule]bool) {
	rules = map[Rule]bool{}
	for len(h.s.b) > 0 {
		if err := h.step(); err != nil {
			require.ErrorIs(h.t, err, ring.ErrProtocol)
			var detail *ProtocolError
			require.ErrorAs(h.t, err, &detail)
			require.Equal(h.t, ScopeLane, detail.Rule.Scope(), "%v", err)
			rules[detail.Rule] = true
		}
	}
	for r := range h.broken {
		rules[r] = true
	}
	if n := h.l.Recalled(); n > 0 { // it keeps places
		require.LessOrEqual(h.t, n, h.l.granted)
		require.ErrorIs(h.t, h.l.KeptPlaces(), RuleRecall)
		rules[RuleRecall] = true
	}
	for range h.l.cfg.Receives { // and a flood
		_ = h.l.Arrive(Doorbell{Type: TypeCredit, Stream: 1, N: 1}.Imm(), nil)
	}
	if errors.Is(h.l.Arrive(Doorbell{Type: TypeControl}.Imm(), nil), RuleDepth) {
		rules[RuleDepth] = true
	}
	return rules
}

// FuzzLane says anything to one end of a lane. It must answer by an error that names the
// rule, keep within its bounds, and never panic.
func FuzzLane(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomScript(seed, 256))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) <= 4096 {
			newHostile(t, &script{b}).run()
		}
	})
}

func randomScript(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestHostilePeer says anything at length, and sees that every rule is broken by some of it
// and named.
func TestHostilePeer(t *testing.T) {
	count := uint64(1500)
	if deep() {
		count = 200_000
	}
	seen := map[Rule]bool{}
	for seed := range count {
		for r := range newHostile(t, &script{randomScript(seed, 1500)}).run() {
			seen[r] = true
		}
	}
	for r := Rule(1); r < numRules; r++ {
		assert.True(t, seen[r], "%v was never broken", r)
	}
}

// FuzzModel takes two ends of a lane a way that the fuzzer chooses.
func FuzzModel(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2048 {
			return
		}
		s := &script{b}
		p := plans[s.next()%len(plans)].plan
		n := s.next()
		p.opens, p.wire, p.pumpsLater, p.sleeps = p.opens+n&3, p.wire+n>>2&3, n&16 != 0, p.sleeps || n&32 != 0
		p.impatient = p.impatient || n&64 != 0
		m, err := newModel(&p)
		require.NoError(t, err)
		for steps := 0; ; steps++ {
			acts := m.actions()
			if len(acts) == 0 {
				require.NoError(t, m.check(), p.name)
				return
			}
			a := acts[s.next()%len(acts)]
			if err = a.do(m); err == nil {
				if err = m.events(a.end); err == nil {
					err = m.settle()
				}
			}
			require.NoError(t, err, p.name)
		}
	})
}
