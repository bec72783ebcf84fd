package ring

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCreditWire(t *testing.T) {
	for _, tt := range []struct {
		c    Credit
		wire string
	}{
		{Credit{Consumed: 0, Reposted: 64, Size: 4096}, "00000000000000004000000000100000"},
		{Credit{Consumed: 0x0102030405060708, Reposted: 0x0a0b0c0d, Size: 64 << 20}, "08070605040302010d0c0b0a00000004"},
		{Credit{Consumed: 1<<64 - 1, Reposted: 1<<32 - 1, Size: 1 << 20}, "ffffffffffffffffffffffff00001000"},
	} {
		b := make([]byte, CreditLen+1)
		b[CreditLen] = 0x55
		tt.c.Put(b)
		assert.Equal(t, tt.wire, hex.EncodeToString(b[:CreditLen]))
		assert.EqualValues(t, 0x55, b[CreditLen], "Put writes no further")

		c, err := ParseCredit(b)
		require.NoError(t, err)
		assert.Equal(t, tt.c, c)
		assert.Equal(t, tt.c, CreditFromWords(tt.c.Words()))
	}
}

func TestParseCreditRefuses(t *testing.T) {
	good := make([]byte, CreditLen)
	Credit{Size: 4096}.Put(good)
	for n := range CreditLen {
		_, err := ParseCredit(good[:n])
		requireViolation(t, ProtocolError{"credit shorter than its block", uint64(n), CreditLen}, err)
	}
	for _, size := range []uint32{0, 1, 2048, 4095, 4097, 12288, 128 << 20, 1 << 31, 1<<32 - 1} {
		b := make([]byte, CreditLen)
		Credit{Size: size}.Put(b)
		c, err := ParseCredit(b)
		requireViolation(t, ProtocolError{"credit with a size that no ring has", uint64(size), MaxSize}, err)
		assert.Zero(t, c)
	}
}

func TestPutNeedsRoom(t *testing.T) {
	b := make([]byte, CreditLen-1)
	assert.Panics(t, func() { Credit{Consumed: 1<<64 - 1}.Put(b) })
	assert.Equal(t, make([]byte, CreditLen-1), b, "nothing is written by half")
}

func FuzzParseCredit(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, CreditLen))
	for _, c := range []Credit{{0, 64, 4096}, {1<<64 - 1, 1<<32 - 1, MaxSize}, {1 << 63, 1 << 31, 1 << 31}, {4096, 80, 8191}} {
		b := make([]byte, CreditLen)
		c.Put(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCredit(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			require.Zero(t, c)
			return
		}
		require.True(t, validSize(c.Size))
		out := make([]byte, CreditLen)
		c.Put(out)
		require.Equal(t, b[:CreditLen], out)
		require.Equal(t, c, CreditFromWords(c.Words()))
	})
}

func BenchmarkCredit(b *testing.B) {
	b.ReportAllocs()
	block := make([]byte, CreditLen)
	for i := uint64(0); b.Loop(); i++ {
		Credit{Consumed: i, Reposted: uint32(i), Size: 4096}.Put(block)
		if _, err := ParseCredit(block); err != nil {
			b.Fatal(err)
		}
	}
}
