package ring

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// frames are the frames of a stream that is cut into these pieces.
func frames(pieces ...[]byte) (ring []byte) {
	sum := uint32(0)
	for _, p := range pieces {
		sum = Checksum(sum, p)
		f := make([]byte, FrameLen(len(p)))
		FrameHeader{uint32(len(p)), sum}.Put(f)
		copy(f[FrameHeaderLen:], p)
		ring = append(ring, f...)
	}
	return ring
}

// TestChecksum has the value that RFC 3720 and everybody else has.
func TestChecksum(t *testing.T) {
	require.Zero(t, Checksum(0, nil))
	require.EqualValues(t, 0xe3069283, Checksum(0, []byte("123456789")))
	require.EqualValues(t, 0xe3069283, Checksum(Checksum(0, []byte("1234")), []byte("56789")))
	require.EqualValues(t, 0x8a9136aa, Checksum(0, make([]byte, 32)), "32 zeros, RFC 3720 B.4")
}

func TestFrameLen(t *testing.T) {
	for n, want := range map[int]int{1: 16, 8: 16, 9: 32, 24: 32, 25: 48, 64: 80, 1 << 20: 1<<20 + 16} {
		assert.Equal(t, want, FrameLen(n), n)
	}
}

func TestFrameHeaderWire(t *testing.T) {
	var b [FrameHeaderLen]byte
	h := FrameHeader{Len: 0x01020304, Sum: 0x05060708}
	h.Put(b[:])
	require.Equal(t, "0403020108070605", hex.EncodeToString(b[:]))
	require.Equal(t, h, frameHeader(b[:]))
}

// TestFrameReader takes a stream out of its frames in pieces of every size, with the wrap
// of the ring in every place.
func TestFrameReader(t *testing.T) {
	text := []byte("the quick brown fox jumps over the lazy dog, twice and once again")
	ring := frames(text[:1], text[1:9], text[9:18], text[18:50], text[50:])
	for wrap := 0; wrap <= len(ring); wrap += FrameAlign {
		for size := 1; size <= len(text)+1; size++ {
			var f, g FrameReader
			var read, peeked []byte
			for a, b := ring[:wrap], ring[wrap:]; len(a)+len(b) > 0; {
				p := make([]byte, size)
				n, used, err := f.Read(p, a, b)
				require.NoError(t, err)
				require.Positive(t, n)
				require.True(t, n == size || used == len(a)+len(b), "it takes all there is")
				read = append(read, p[:n]...)
				a, b = skip(a, b, used)
			}
			for a, b := ring[:wrap], ring[wrap:]; len(a)+len(b) > 0; {
				used, err := g.Open(a, b)
				require.NoError(t, err)
				if a, b = skip(a, b, used); len(a) == 0 {
					a, b = b, nil
				}
				n := min(g.Left(), len(a), size)
				peeked = append(peeked, a[:n]...)
				a, b = skip(a, b, g.Take(n))
			}
			require.Equal(t, string(text), string(read))
			require.Equal(t, string(text), string(peeked))
			require.Equal(t, Checksum(0, text), f.Sum())
			require.Equal(t, Checksum(0, text), g.Sum())
		}
	}
}

// TestFrameReaderFinds changes each bit of a stream's frames in turn: the frame that has it
// is refused, what came before it is not, and nothing of it gets out.
func TestFrameReaderFinds(t *testing.T) {
	pieces := [][]byte{[]byte("first"), []byte("second and longer"), []byte("3")}
	good := frames(pieces...)
	for i := range good {
		for bit := range 8 {
			ring := bytes.Clone(good)
			ring[i] ^= 1 << bit
			at, before, padding := 0, 0, false
			for _, p := range pieces {
				if i < at+FrameLen(len(p)) {
					padding = i >= at+FrameHeaderLen+len(p)
					break
				}
				at, before = at+FrameLen(len(p)), before+len(p)
			}
			for _, size := range []int{3, 64} {
				var f FrameReader
				var got []byte
				rest, err := ring, error(nil)
				for len(rest) > 0 && err == nil {
					var n, used int
					p := make([]byte, size)
					n, used, err = f.Read(p, rest, nil)
					got, rest = append(got, p[:n]...), rest[used:]
				}
				if padding {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, ErrChecksum, "byte %d, bit %d", i, bit)
				require.Len(t, got, before)
			}
		}
	}
}

// TestFrameReaderFindsDisplaced has whole frames, each good by itself, in the wrong order,
// twice, not at all, or from the round of the ring before.
func TestFrameReaderFindsDisplaced(t *testing.T) {
	a, b, c := []byte("one, as long"), []byte("two, as long"), []byte("six, as long")
	good := frames(a, b, c)
	n := FrameLen(len(a))
	fa, fb, fc := good[:n], good[n:2*n], good[2*n:]
	for name, ring := range map[string][][]byte{
		"swapped":       {fb, fa, fc},
		"twice":         {fa, fa, fb, fc},
		"lost":          {fa, fc},
		"from before":   {fa, fb, fb},
		"never written": {fa, make([]byte, n)},
		"cut off":       {fa, fb[:16]},
		"no header":     {fa, fb[:4]},
	} {
		var f FrameReader
		p := make([]byte, 100)
		n, used, err := f.Read(p, bytes.Join(ring, nil), nil)
		if err == nil {
			_, _, err = f.Read(p[n:], bytes.Join(ring, nil)[used:], nil)
		}
		require.ErrorIs(t, err, ErrChecksum, name)
	}
}

func TestChecksumErrorText(t *testing.T) {
	require.EqualError(t, &ChecksumError{Len: 12, Got: 1, Want: 0xffffffff}, "ring: wrong checksum: that of 12 bytes is not the sender's")
	require.EqualError(t, &ChecksumError{Header: true}, "ring: wrong checksum: no message begins here")
}

// TestChecksumErrorKeepsBytes: where bytes of the stream lie in place of a header, and where the checksum of a
// few of them is wrong, the error has nothing of which they could be told.
func TestChecksumErrorKeepsBytes(t *testing.T) {
	var f FrameReader
	_, _, err := f.Read(make([]byte, 100), []byte("password and more of it."), nil)
	require.Equal(t, &ChecksumError{Header: true}, err)
	ring := frames([]byte("pin7"))
	ring[FrameHeaderLen]++
	_, _, err = f.Read(make([]byte, 100), ring, nil)
	require.ErrorIs(t, err, ErrChecksum)
	require.NotContains(t, err.Error(), "0x")
}

func TestFramesDoNotAllocate(t *testing.T) {
	ring, p := frames(make([]byte, 100), make([]byte, 5000)), make([]byte, 6000)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var f FrameReader
		_, _, _ = f.Read(p, ring, nil)
		var g FrameReader
		_, _ = g.Open(ring, nil)
	}))
}

// FuzzFrameReader gives it what a peer may have written, and both ways to take it.
func FuzzFrameReader(f *testing.F) {
	good := frames([]byte("hello, ring\n"), []byte("bye\n"), bytes.Repeat([]byte{7}, 100))
	f.Add(good, 32, 5, 0)
	f.Add(good, 0, 1000, 1)
	f.Add(good[:48], 16, 3, 2)
	f.Add(make([]byte, 64), 0, 10, 0)
	f.Add(bytes.Repeat([]byte{0xff}, 64), 48, 10, 1)
	f.Add(binary.LittleEndian.AppendUint64(nil, maxPayload), 0, 1, 0)
	f.Fuzz(func(t *testing.T, ring []byte, wrap, size, ways int) {
		wrap = min(max(wrap, 0)&^(FrameAlign-1), len(ring)&^(FrameAlign-1))
		size = min(max(size, 1), 1<<16)
		a, b := ring[:wrap], ring[wrap:]
		var r FrameReader
		var got []byte
		for len(a)+len(b) > 0 {
			if len(a) == 0 {
				a, b = b, nil
			}
			var n, used int
			var err error
			p := make([]byte, size)
			if ways&1 == 0 {
				n, used, err = r.Read(p, a, b)
			} else if used, err = r.Open(a, b); err == nil {
				if a, b = skip(a, b, used); len(a) == 0 {
					a, b = b, nil
				}
				n = copy(p[:min(size, r.Left())], a)
				used = r.Take(n)
			}
			ways = ways>>1 | ways<<62
			if err != nil {
				require.ErrorIs(t, err, ErrChecksum)
				require.Zero(t, n)
				break
			}
			require.Positive(t, n)
			require.LessOrEqual(t, used, len(a)+len(b))
			got = append(got, p[:n]...)
			a, b = skip(a, b, used)
		}
		if r.Left() == 0 {
			require.Equal(t, Checksum(0, got), r.Sum(), "what got out is what was compared")
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	b.ReportAllocs()
	ring, p := frames(make([]byte, 64)), make([]byte, 64)
	for b.Loop() {
		var f FrameReader
		if n, _, err := f.Read(p, ring, nil); n != 64 || err != nil {
			b.Fatal(err)
		}
	}
}
