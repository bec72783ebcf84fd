package ring

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustReceiver(t testing.TB, size, maxSize, depth uint32, bytes uint64, messages uint32) *Receiver {
	t.Helper()
	r, err := newReceiver(size, maxSize, depth, bytes, messages)
	require.NoError(t, err)
	return r
}

func data(n uint32) Doorbell  { return Doorbell{Kind: KindData, Len: n} }
func grown(n uint32) Doorbell { return Doorbell{Kind: KindData, Len: n, Grown: true} }

func requireReadable(t testing.TB, r *Receiver, a, b Span) {
	t.Helper()
	gotA, gotB := r.Readable()
	require.Equal(t, a, gotA)
	require.Equal(t, b, gotB)
	require.EqualValues(t, a.Len+b.Len, r.Buffered())
}

func TestReceiverReadsInOrder(t *testing.T) {
	for _, o := range origins {
		r := mustReceiver(t, 4096, 4096, 64, o.bytes, o.messages)
		requireReadable(t, r, Span{0, 0}, Span{})
		require.NoError(t, r.Data(data(3000)))
		requireReadable(t, r, Span{0, 3000}, Span{})
		require.NoError(t, r.Consume(2000))
		requireReadable(t, r, Span{2000, 1000}, Span{})
		require.NoError(t, r.Data(data(3096)))
		requireReadable(t, r, Span{2000, 2096}, Span{0, 2000})
		require.NoError(t, r.Consume(2096))
		requireReadable(t, r, Span{0, 2000}, Span{})
		require.NoError(t, r.Data(data(2096)))
		requireReadable(t, r, Span{0, 4096}, Span{})
		require.NoError(t, r.Consume(4096))
		requireReadable(t, r, Span{4096, 0}, Span{})
		require.NoError(t, r.Data(data(4096)))
		requireReadable(t, r, Span{0, 4096}, Span{})
		assert.Equal(t, o.bytes+12288, r.ReceivedBytes())
		assert.Equal(t, o.bytes+8192, r.ConsumedBytes())
	}
}

func TestConsumeRefuses(t *testing.T) {
	r := mustReceiver(t, 4096, 4096, 64, math.MaxUint64-10, 0)
	require.NoError(t, r.Data(data(100)))
	for _, n := range []int{-1, math.MinInt, 101, math.MaxInt} {
		before := *r
		require.ErrorIs(t, r.Consume(n), ErrConfig)
		require.Equal(t, before, *r)
	}
	require.ErrorContains(t, r.Consume(101), "cannot consume 101 bytes of 100 buffered")
	require.NoError(t, r.Consume(0))
	require.NoError(t, r.Consume(100))
}

func TestReceiverGrows(t *testing.T) {
	r := mustReceiver(t, 4096, 1<<16, 64, 0, 0)
	require.NoError(t, r.Data(data(4000)))
	require.NoError(t, r.Consume(3900))
	require.NoError(t, r.Grow(16384))
	assert.True(t, r.Growing())
	assert.EqualValues(t, 16384, r.Size())
	assert.EqualValues(t, 16384, r.Credit().Size)

	// The peer does not know yet, and wraps.
	require.NoError(t, r.Data(data(200)))
	requireReadable(t, r, Span{3900, 196}, Span{0, 104})
	// It knows now, and fills the old ring first.
	require.NoError(t, r.Consume(200))
	require.NoError(t, r.Data(data(3992)))
	require.NoError(t, r.Data(grown(12288)))
	assert.False(t, r.Growing())
	requireReadable(t, r, Span{4, 16380}, Span{0, 0})
	require.NoError(t, r.Data(data(4)), "up to the byte")
	requireReadable(t, r, Span{4, 16380}, Span{0, 4})
	require.Error(t, r.Data(data(1)))

	require.NoError(t, r.Grow(32768), "and once more")
	require.NoError(t, r.Consume(16384))
	require.NoError(t, r.Data(data(16380)))
	require.NoError(t, r.Data(grown(1)))
	requireReadable(t, r, Span{4, 16381}, Span{})
}

func TestGrowRefuses(t *testing.T) {
	r := mustReceiver(t, 8192, 32768, 64, 0, 0)
	for _, size := range []uint32{0, 1, 4096, 8192, 8193, 12288, 65536, 1 << 31, 1<<32 - 1} {
		require.ErrorIs(t, r.Grow(size), ErrConfig)
		require.False(t, r.Growing())
	}
	require.NoError(t, r.Grow(16384))
	require.ErrorIs(t, r.Grow(16384), ErrConfig)
	require.ErrorIs(t, r.Grow(32768), ErrGrowing)
	require.EqualValues(t, 16384, r.Size())
}

func TestDataRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		sent, consumed uint32 // before
		grow           bool   // from 4096 to 8192
		d              Doorbell
		want           ProtocolError
	}{
		"other kind":           {100, 0, false, Doorbell{Kind: KindFIN}, ProtocolError{"data expected, other kind of doorbell", 3, 1}},
		"other kind, length":   {100, 0, false, Doorbell{Kind: KindCredit, Len: 5}, ProtocolError{"data expected, other kind of doorbell", 2, 1}},
		"no kind":              {100, 0, false, Doorbell{}, ProtocolError{"data expected, other kind of doorbell", 0, 1}},
		"empty":                {100, 0, false, data(0), ProtocolError{"data message of length zero", 0, 4096}},
		"empty grown":          {4096, 0, true, grown(0), ProtocolError{"data message of length zero", 0, 4096}},
		"beyond free":          {100, 0, false, data(3997), ProtocolError{"data beyond the free space of the ring", 3997, 3996}},
		"beyond free, wrapped": {4000, 10, false, data(107), ProtocolError{"data beyond the free space of the ring", 107, 106}},
		"full":                 {4096, 0, false, data(1), ProtocolError{"data beyond the free space of the ring", 1, 0}},
		"full, growth granted": {4096, 0, true, data(1), ProtocolError{"data beyond the free space of the ring", 1, 0}},
		"huge":                 {100, 0, false, data(math.MaxUint32), ProtocolError{"data beyond the free space of the ring", math.MaxUint32, 3996}},
		"grown without grant":  {4096, 4096, false, grown(1), ProtocolError{"ring grown without a grant", 1, 0}},
		"grown too early":      {4095, 0, true, grown(1), ProtocolError{"ring grown before its old end", 4095, 4096}},
		"grown at the start":   {0, 0, true, grown(1), ProtocolError{"ring grown before its old end", 0, 4096}},
		"grown and straddling": {4096, 4096, true, grown(4097), ProtocolError{"data straddles the end of a ring just grown", 4097, 4096}},
		"grown and huge":       {4096, 4096, true, grown(math.MaxUint32), ProtocolError{"data straddles the end of a ring just grown", math.MaxUint32, 4096}},
	} {
		for _, o := range origins {
			r := mustReceiver(t, 4096, 8192, 64, o.bytes, o.messages)
			if tt.sent > 0 {
				require.NoError(t, r.Data(data(tt.sent)))
			}
			require.NoError(t, r.Consume(int(tt.consumed)))
			if tt.grow {
				require.NoError(t, r.Grow(8192))
			}
			before := *r
			err := r.Data(tt.d)
			require.Error(t, err, name)
			requireViolation(t, tt.want, err)
			require.Equal(t, before, *r, "%s: refused data changes nothing", name)
		}
	}
}

func TestCreditDueByBytes(t *testing.T) {
	for _, o := range origins {
		r := mustReceiver(t, 4096, 4096, 64, o.bytes, o.messages)
		require.NoError(t, r.Data(data(2047)))
		require.NoError(t, r.Consume(2047))
		assert.False(t, r.CreditDue(), "less than half the ring was used")
		assert.True(t, r.CreditPending())
		require.NoError(t, r.Data(data(1)))
		assert.True(t, r.CreditDue(), "half of it")
		r.CreditSent(r.Credit())
		assert.False(t, r.CreditDue())
		assert.False(t, r.CreditPending())

		require.NoError(t, r.Data(data(4095)))
		require.NoError(t, r.Consume(408))
		assert.False(t, r.CreditDue(), "less than a tenth was consumed")
		require.NoError(t, r.Consume(1))
		assert.True(t, r.CreditDue())

		c := r.Credit()
		assert.Equal(t, Credit{o.bytes + 2047 + 409, o.messages + 64, 4096}, c)
		require.NoError(t, r.Consume(409))
		r.CreditSent(c)
		assert.True(t, r.CreditDue(), "what was consumed after the credit was made is not reported by it")
	}
}

func TestCreditDueByReceives(t *testing.T) {
	for _, o := range origins {
		r := mustReceiver(t, 4096, 4096, 100, o.bytes, o.messages)
		r.Reposted(24)
		assert.False(t, r.CreditDue())
		assert.True(t, r.CreditPending())
		r.Reposted(1)
		assert.True(t, r.CreditDue())
		assert.Equal(t, Credit{o.bytes, o.messages + 125, 4096}, r.Credit())
		r.CreditSent(r.Credit())
		assert.False(t, r.CreditPending())
		r.Reposted(math.MaxUint32) // a caller's mistake is not fatal
		assert.True(t, r.CreditDue())
	}
}

func TestGrantIsPendingNotDue(t *testing.T) {
	r := mustReceiver(t, 4096, 1<<20, 64, 0, 0)
	require.NoError(t, r.Grow(1<<20))
	assert.True(t, r.CreditPending())
	assert.False(t, r.CreditDue())
	// What is due goes by the ring in use. A sender whose bytes wrap is blocked by
	// it, and would wait for ever for a credit at half of the ring granted.
	require.NoError(t, r.Data(data(2048)))
	require.NoError(t, r.Consume(409))
	assert.True(t, r.CreditDue())
	r.CreditSent(r.Credit())
	assert.False(t, r.CreditPending())
	assert.True(t, r.Growing())
}

func TestReceiverDoesNotAllocate(t *testing.T) {
	r := mustReceiver(t, 4096, 4096, 64, 0, 0)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if r.Data(data(4000)) != nil || r.Consume(4000) != nil {
			panic("refused")
		}
		r.Reposted(1)
		r.Readable()
		if r.CreditDue() && r.CreditPending() {
			r.CreditSent(r.Credit())
		}
	}))
}

// checkReceiver checks what holds for a Receiver whatever the peer says.
func checkReceiver(t testing.TB, r *Receiver) {
	t.Helper()
	require.LessOrEqual(t, r.Buffered(), int(r.size))
	require.LessOrEqual(t, r.pos, r.size)
	require.LessOrEqual(t, r.size, r.Size())
	a, b := r.Readable()
	require.EqualValues(t, r.Buffered(), a.Len+b.Len)
	require.LessOrEqual(t, uint64(a.Off)+uint64(a.Len), uint64(r.size))
	require.LessOrEqual(t, uint64(b.Off)+uint64(b.Len), uint64(r.size))
	if b.Len > 0 {
		require.Zero(t, b.Off)
		require.Equal(t, r.size, a.Off+a.Len, "b is what follows the wrap")
		require.LessOrEqual(t, b.Len, a.Off, "the two do not overlap")
	}
}

// FuzzReceiverData lets a peer ring any doorbell between reads and growth.
func FuzzReceiverData(f *testing.F) {
	step := func(kind byte, n uint32, grown byte, consume uint16, grow byte) []byte {
		b := append([]byte{kind}, binary.LittleEndian.AppendUint32(nil, n)...)
		b = binary.LittleEndian.AppendUint16(append(b, grown), consume)
		return append(b, grow)
	}
	f.Add(uint64(0), step(1, 100, 0, 100, 0))
	f.Add(uint64(math.MaxUint64-99), append(step(1, 4096, 0, 4096, 13), step(1, 4096, 1, 10, 14)...))
	f.Add(uint64(1<<63), append(step(1, 4000, 0, 3000, 0), step(1, 3000, 0, 2000, 16)...))
	f.Add(uint64(0), step(1, math.MaxUint32, 1, math.MaxUint16, 31))
	f.Fuzz(func(t *testing.T, bytes uint64, script []byte) {
		r := mustReceiver(t, 4096, 1<<16, 64, bytes, 0)
		for ; len(script) >= 9; script = script[9:] {
			d := Doorbell{Kind: Kind(script[0]), Len: binary.LittleEndian.Uint32(script[1:]), Grown: script[5]&1 == 1}
			before := *r
			if err := r.Data(d); err != nil {
				require.ErrorIs(t, err, ErrProtocol)
				require.Equal(t, before, *r)
			} else {
				require.Equal(t, KindData, d.Kind)
				require.Positive(t, d.Len)
				require.True(t, !d.Grown || before.Growing() && before.pos == before.size)
				require.Equal(t, before.Buffered()+int(d.Len), r.Buffered())
				a, _ := before.Readable()
				after, _ := r.Readable()
				require.True(t, a.Len == 0 || a.Off == after.Off, "what was unread stays where it is")
			}
			checkReceiver(t, r)
			n := int(binary.LittleEndian.Uint16(script[6:]))
			require.Equal(t, n > r.Buffered(), r.Consume(n) != nil)
			_ = r.Grow(1 << (script[8] & 31))
			r.Reposted(uint32(script[8]))
			if r.CreditDue() {
				require.True(t, r.CreditPending())
				r.CreditSent(r.Credit())
			}
			checkReceiver(t, r)
		}
	})
}

func BenchmarkDataConsume(b *testing.B) {
	r := mustReceiver(b, 1<<16, 1<<16, MaxDepth, 0, 0)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Data(Doorbell{Kind: KindData, Len: 64}); err != nil {
			b.Fatal(err)
		}
		if err := r.Consume(64); err != nil {
			b.Fatal(err)
		}
		r.Reposted(1)
		if r.CreditDue() {
			r.CreditSent(r.Credit())
		}
	}
}
