package ring

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// origins are where counts start in tests: at zero, and so near the ends of 64 and
// 32 bits that they wrap soon.
var origins = []struct {
	bytes    uint64
	messages uint32
}{
	{0, 0},
	{math.MaxUint64 - 5000, math.MaxUint32 - 70},
	{math.MaxUint64, math.MaxUint32},
	{1<<63 - 1, 1<<31 - 1},
	{1<<32 - 3000, 1<<31 - 65},
}

func mustSender(t testing.TB, size, maxSize, depth uint32, bytes uint64, messages uint32) *Sender {
	t.Helper()
	s, err := newSender(size, maxSize, depth, bytes, messages)
	require.NoError(t, err)
	return s
}

// send takes what Next offers for n bytes and records it as sent.
func send(s *Sender, n int) Grant {
	g := s.Next(n)
	s.Sent(g)
	return g
}

func TestSenderFillsWrapsAndBlocks(t *testing.T) {
	for _, o := range origins {
		s := mustSender(t, 4096, 4096, 64, o.bytes, o.messages)
		credit := func(consumed uint64) {
			t.Helper()
			require.NoError(t, s.Update(Credit{o.bytes + consumed, s.messages + 64, 4096}))
		}
		assert.Equal(t, 4096, s.Free())
		assert.Equal(t, Grant{}, s.Next(0))
		assert.Equal(t, Grant{}, s.Next(-1))
		assert.Equal(t, Grant{}, s.Next(math.MinInt))
		assert.Equal(t, Grant{N: 3000, Span: [2]Span{{0, 3000}}, Spans: 1}, send(s, 3000))
		assert.Equal(t, Grant{N: 1096, Span: [2]Span{{3000, 1096}}, Spans: 1}, s.Next(math.MaxInt))
		assert.Equal(t, 1096, s.Free(), "Next changes nothing")

		credit(2000)
		assert.Equal(t, 3096, s.Free())
		assert.Equal(t, Grant{N: 3096, Span: [2]Span{{3000, 1096}, {0, 2000}}, Spans: 2}, send(s, 5000))
		assert.Zero(t, s.Free())
		assert.Equal(t, Grant{}, s.Next(1))
		assert.EqualValues(t, 4096, s.InFlight())

		credit(6096)
		assert.Equal(t, Grant{N: 2096, Span: [2]Span{{2000, 2096}}, Spans: 1}, send(s, 2096), "up to the end exactly")
		assert.Equal(t, Grant{N: 2000, Span: [2]Span{{0, 2000}}, Spans: 1}, send(s, 9999), "the next one starts over")
		assert.EqualValues(t, 4096, s.InFlight())
		assert.Equal(t, o.bytes+10192, s.SentBytes())
	}
}

func TestSenderSlots(t *testing.T) {
	for _, o := range origins {
		s := mustSender(t, 4096, 4096, 64, o.bytes, o.messages)
		assert.Equal(t, 64, s.ControlSlots())
		assert.Equal(t, 64-ControlReserve, s.Slots())
		for range 64 - ControlReserve {
			require.Equal(t, 1, send(s, 1).N)
		}
		assert.Zero(t, s.Slots())
		assert.Equal(t, ControlReserve, s.ControlSlots())
		assert.Equal(t, Grant{}, s.Next(1), "room for bytes, none for a message")
		assert.Equal(t, 4096-48, s.Free())
		for i := range ControlReserve {
			assert.Equal(t, ControlReserve-i, s.ControlSlots())
			s.SentControl()
		}
		assert.Zero(t, s.ControlSlots())
		s.SentControl() // a caller's mistake does not turn into a window of 2^32
		assert.Zero(t, s.ControlSlots())
		assert.Zero(t, s.Slots())

		require.NoError(t, s.Update(Credit{o.bytes, o.messages + 64 + 18, 4096}))
		assert.Equal(t, 17, s.ControlSlots())
		assert.Equal(t, 1, s.Slots())
	}
}

func TestSenderGrows(t *testing.T) {
	s := mustSender(t, 4096, 1<<16, 64, 0, 0)
	credit := func(consumed uint64, size uint32) {
		t.Helper()
		require.NoError(t, s.Update(Credit{consumed, s.messages + 64, size}))
	}
	send(s, 4000)
	credit(3000, 4096)
	require.Equal(t, 2, send(s, 200).Spans)
	credit(3000, 16384)
	assert.EqualValues(t, 16384, s.Size())
	assert.Equal(t, 4096-1200, s.Free(), "while its bytes wrap, the sender cannot use the new area")
	assert.Equal(t, Grant{N: 2896, Span: [2]Span{{104, 2896}}, Spans: 1}, send(s, 9999))
	assert.Zero(t, s.Free())

	credit(4100, 16384) // past the wrap: what is in flight lies before the write position
	assert.Equal(t, 16384-2996, s.Free())
	assert.Equal(t, Grant{N: 1096, Span: [2]Span{{3000, 1096}}, Spans: 1}, send(s, 9999), "stops at the old end")
	assert.Equal(t, Grant{N: 12288, Span: [2]Span{{4096, 12288}}, Spans: 1, Grown: true}, s.Next(99999), "and goes on beyond it")
	g := send(s, 100)
	assert.Equal(t, Grant{N: 100, Span: [2]Span{{4096, 100}}, Spans: 1, Grown: true}, g)
	assert.Equal(t, Doorbell{Kind: KindData, Len: 100, Grown: true}, g.Doorbell())
	assert.Equal(t, Grant{N: 12192, Span: [2]Span{{4196, 12188}, {0, 4}}, Spans: 2}, s.Next(99999), "grown is said once")
}

func TestSenderLearnsOfGrowthBetweenNextAndSent(t *testing.T) {
	s := mustSender(t, 4096, 8192, 64, 0, 0)
	send(s, 4000)
	require.NoError(t, s.Update(Credit{4000, 65, 4096}))
	g := s.Next(200)
	require.NoError(t, s.Update(Credit{4000, 65, 8192}))
	s.Sent(g)
	assert.Equal(t, Grant{N: 3896, Span: [2]Span{{104, 3896}}, Spans: 1}, s.Next(5000))
	s.Sent(Grant{})
	assert.EqualValues(t, 4200, s.SentBytes())
}

func TestUpdateRefuses(t *testing.T) {
	for _, o := range origins {
		b, m := o.bytes, o.messages
		for name, tt := range map[string]struct {
			c    Credit
			want ProtocolError
		}{
			"consumed backwards":  {Credit{b + 499, m + 70, 4096}, ProtocolError{"credit takes back consumed bytes", b + 499, b + 500}},
			"consumed beyond":     {Credit{b + 1001, m + 70, 4096}, ProtocolError{"credit for bytes that were not sent", b + 1001, b + 1000}},
			"consumed far beyond": {Credit{b + 500 + 1<<62, m + 70, 4096}, ProtocolError{"credit for bytes that were not sent", b + 500 + 1<<62, b + 1000}},
			"consumed half round": {Credit{b + 500 + 1<<63, m + 70, 4096}, ProtocolError{"credit takes back consumed bytes", b + 500 + 1<<63, b + 500}},
			"reposted backwards":  {Credit{b + 500, m + 69, 4096}, ProtocolError{"credit takes back receives", uint64(m + 69), uint64(m + 70)}},
			"reposted beyond":     {Credit{b + 500, m + 75, 4096}, ProtocolError{"credit for more receives than the queue holds", uint64(m + 75), uint64(m + 74)}},
			"reposted far beyond": {Credit{b + 500, m + 69 + 1<<31, 4096}, ProtocolError{"credit for more receives than the queue holds", uint64(m + 69 + 1<<31), uint64(m + 74)}},
			"reposted half round": {Credit{b + 500, m + 70 + 1<<31, 4096}, ProtocolError{"credit takes back receives", uint64(m + 70 + 1<<31), uint64(m + 70)}},
			"size zero":           {Credit{b + 500, m + 70, 0}, ProtocolError{"credit with a size that no ring has", 0, MaxSize}},
			"size odd":            {Credit{b + 500, m + 70, 4097}, ProtocolError{"credit with a size that no ring has", 4097, MaxSize}},
			"size huge":           {Credit{b + 500, m + 70, 1 << 31}, ProtocolError{"credit with a size that no ring has", 1 << 31, MaxSize}},
			"size beyond maximum": {Credit{b + 500, m + 70, 32768}, ProtocolError{"credit grows the ring beyond its maximum", 32768, 16384}},
		} {
			s := mustSender(t, 4096, 16384, 64, b, m)
			for range 10 {
				send(s, 100)
			}
			require.NoError(t, s.Update(Credit{b + 500, m + 70, 4096}))
			before := *s
			err := s.Update(tt.c)
			require.Error(t, err, name)
			requireViolation(t, tt.want, err)
			assert.Equal(t, before, *s, "%s: a refused credit changes nothing", name)
		}
	}
}

func TestUpdateRefusesResizing(t *testing.T) {
	s := mustSender(t, 4096, 32768, 64, 0, 0)
	require.NoError(t, s.Update(Credit{0, 64, 8192}))
	require.NoError(t, s.Update(Credit{0, 64, 8192}), "a credit may repeat")
	requireViolation(t, ProtocolError{"credit shrinks the ring", 4096, 8192}, s.Update(Credit{0, 64, 4096}))
	requireViolation(t, ProtocolError{"credit grows the ring again before the last growth was taken up", 16384, 8192}, s.Update(Credit{0, 64, 16384}))
	send(s, 4096)
	requireViolation(t, ProtocolError{"credit grows the ring again before the last growth was taken up", 16384, 8192}, s.Update(Credit{0, 64, 16384}))
	require.True(t, send(s, 1).Grown)
	require.NoError(t, s.Update(Credit{0, 64, 16384}))
}

func TestSenderDoesNotAllocate(t *testing.T) {
	s := mustSender(t, 4096, 4096, 64, 0, 0)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		send(s, 100)
		s.SentControl()
		if s.Update(Credit{s.sent, s.messages + 64, 4096}) != nil {
			panic("refused")
		}
	}))
}

// checkSender checks what holds for a Sender whatever the peer says.
func checkSender(t testing.TB, s *Sender) {
	t.Helper()
	require.GreaterOrEqual(t, s.Free(), 0)
	require.LessOrEqual(t, uint64(s.Free())+s.InFlight(), uint64(s.Size()))
	require.LessOrEqual(t, s.Size(), s.maxSize)
	require.LessOrEqual(t, s.ControlSlots(), int(s.depth))
	require.LessOrEqual(t, s.pos, s.size)
	g := s.Next(math.MaxInt)
	require.Equal(t, g.N > 0, s.Free() > 0 && s.Slots() > 0, "Next is blocked by a window only")
	require.LessOrEqual(t, g.N, s.Free())
	require.EqualValues(t, g.N, g.Span[0].Len+g.Span[1].Len)
	for i, span := range g.Span {
		require.Equal(t, i < g.Spans, span.Len > 0)
		require.LessOrEqual(t, span.Off+span.Len, s.Size())
	}
}

// FuzzSenderUpdate lets a peer say anything between messages that are sent.
func FuzzSenderUpdate(f *testing.F) {
	step := func(n uint16, consumed uint64, reposted, size uint32) []byte {
		b := binary.LittleEndian.AppendUint16(nil, n)
		b = binary.LittleEndian.AppendUint64(b, consumed)
		b = binary.LittleEndian.AppendUint32(b, reposted)
		return binary.LittleEndian.AppendUint32(b, size)
	}
	f.Add(uint64(0), uint32(0), step(100, 100, 65, 4096))
	f.Add(uint64(0), uint32(0), append(step(4096, 0, 65, 8192), step(4000, 4096, 66, 16384)...))
	f.Add(uint64(math.MaxUint64-99), uint32(math.MaxUint32-63), step(100, 0, 1, 4096))
	f.Add(uint64(1<<63), uint32(1<<31), step(1, 1, 1<<31+65, 1<<31))
	f.Fuzz(func(t *testing.T, bytes uint64, messages uint32, script []byte) {
		s := mustSender(t, 4096, 1<<16, 64, bytes, messages)
		for ; len(script) >= 18; script = script[18:] {
			send(s, int(binary.LittleEndian.Uint16(script)))
			c := CreditFromWords(binary.LittleEndian.Uint64(script[2:]), binary.LittleEndian.Uint64(script[10:]))
			before := *s
			if err := s.Update(c); err != nil {
				require.ErrorIs(t, err, ErrProtocol)
				require.Equal(t, before, *s)
			} else {
				require.LessOrEqual(t, s.InFlight(), before.InFlight())
				require.GreaterOrEqual(t, s.ControlSlots(), before.ControlSlots())
				require.GreaterOrEqual(t, s.Size(), before.Size())
			}
			checkSender(t, s)
		}
	})
}

func BenchmarkNextSent(b *testing.B) {
	s := mustSender(b, 1<<16, 1<<16, MaxDepth, 0, 0)
	b.ReportAllocs()
	for b.Loop() {
		g := s.Next(64)
		if g.N == 0 {
			s.consumed, s.posted = s.sent, s.messages+s.depth
			continue
		}
		s.Sent(g)
	}
}

func BenchmarkUpdate(b *testing.B) {
	s := mustSender(b, 1<<16, 1<<16, MaxDepth, 0, 0)
	b.ReportAllocs()
	for b.Loop() {
		s.sent += 64
		s.messages++
		if err := s.Update(Credit{s.sent, s.messages + s.depth, 1 << 16}); err != nil {
			b.Fatal(err)
		}
	}
}
