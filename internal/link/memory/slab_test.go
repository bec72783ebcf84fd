package memory

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A heap is a device whose memory is Go's. It has nothing but what a Slab asks for.
type heap struct {
	verbs.Context
	mapped atomic.Int64 // bytes
}

type heapPD struct {
	verbs.PD
	registered atomic.Int64 // regions
}

type heapMemory struct {
	verbs.Memory
	of *heap
	b  []byte
}

type heapMR struct {
	verbs.MR
	of *heapPD
}

func (h *heap) AllocMemory(size, _ int) (verbs.Memory, error) {
	h.mapped.Add(int64(size))
	return &heapMemory{of: h, b: make([]byte, size)}, nil
}

func (m *heapMemory) Bytes() []byte { return m.b }

func (m *heapMemory) Close() error {
	m.of.mapped.Add(-int64(len(m.b)))
	return nil
}

func (pd *heapPD) RegMR([]byte, verbs.AccessFlags) (verbs.MR, error) {
	pd.registered.Add(1)
	return &heapMR{of: pd}, nil
}

func (m *heapMR) Close() error {
	m.of.registered.Add(-1)
	return nil
}

// A book is what a Slab and its device have.
type book struct {
	*testing.T
	s  *Slab
	h  *heap
	pd *heapPD
	b  *Budget
}

func newBook(t *testing.T, limit int64) *book { return newBookOf(t, budgetOf(limit)) }

func newBookOf(t *testing.T, b *Budget) *book {
	k := &book{T: t, h: &heap{}, pd: &heapPD{}, b: b}
	k.s = NewSlab(k.h, k.pd, k.b, verbs.AccessLocalWrite)
	require.NoError(t, k.s.Prepare(1<<10, FirstChunk))
	return k
}

// has checks that so many bytes are registered behind the first chunk, in so many regions.
func (k *book) has(bytes, regions int) {
	k.Helper()
	bytes, regions = bytes+FirstChunk, regions+1
	require.EqualValues(k, bytes, k.b.InUse())
	require.EqualValues(k, bytes, k.s.Registered())
	require.EqualValues(k, bytes, k.h.mapped.Load())
	require.EqualValues(k, regions, k.pd.registered.Load())
}

func (k *book) alloc(size uint32) Piece {
	k.Helper()
	p, err := k.s.Alloc(size, ForGrowth)
	require.NoError(k, err)
	return p
}

// free gives pieces back. All but the last are to be kept without a word.
func (k *book) free(pieces ...Piece) (trim, age bool) {
	k.Helper()
	for _, p := range pieces {
		trim, age = k.s.Free(p)
	}
	return trim, age
}

// age calls Age and Trim.
func (k *book) age(want bool) {
	k.Helper()
	trim, again := k.s.Age()
	require.Equal(k, want, again)
	if trim {
		require.NoError(k, k.s.Trim())
	}
}

// TestChunksGoBack: chunks that are empty are kept for a while, unless memory is short.
func TestChunksGoBack(t *testing.T) {
	k := newBook(t, 1<<30)
	k.has(0, 0)
	var pieces []Piece
	for range 1 + 48 { // the first chunk, and behind it a quarter of a chunk each
		pieces = append(pieces, k.alloc(64<<10))
	}
	k.has(12*ChunkSize, 12)
	trim, age := k.free(pieces[:1]...)
	require.False(t, trim || age, "it is needed")
	trim, age = k.free(pieces[1:]...)
	require.False(t, trim)
	require.True(t, age)
	k.age(true)
	k.has(12*ChunkSize, 12)
	used := k.alloc(ChunkSize)
	k.age(false)
	k.has(ChunkSize, 1)
	k.free(used)
	k.age(true)
	k.age(false)
	k.has(0, 0)
	k.age(false)
	k.has(0, 0)

	k.b.SetLimit(0)
	_, err := k.s.Alloc(FirstChunk, ForGrowth)
	require.ErrorIs(t, err, verbs.ErrNoMemory, "growth leaves to the others what is registered")
	p, err := k.s.Alloc(FirstChunk, ForStream)
	require.NoError(t, err, "what is registered costs nothing")
	trim, _ = k.s.Free(p)
	require.True(t, trim, "memory is short")
	require.NoError(t, k.s.Trim())
	k.has(-FirstChunk, -1)
}

// TestNeededChunkStays: an empty chunk stays while no other has room for a first ring, and goes when one has.
func TestNeededChunkStays(t *testing.T) {
	k := newBook(t, 1<<30)
	full := k.alloc(FirstChunk - FirstChunk/2)
	rest := k.alloc(FirstChunk / 2)
	_, age := k.free(k.alloc(1 << 10))
	require.False(t, age)
	k.age(false)
	k.age(false)
	k.has(ChunkSize, 1)
	k.b.SetLimit(ChunkSize)
	k.age(false)
	k.has(ChunkSize, 1)

	_, age = k.free(rest)
	require.True(t, age, "the first has room again")
	k.age(false)
	k.has(0, 0)
	k.b.SetLimit(1 << 30)
	k.alloc(1 << 10)
	k.has(0, 0)
	k.free(full)
}

// TestSlabWithoutFirstRing: Buffers need no chunk when there are none.
func TestSlabWithoutFirstRing(t *testing.T) {
	s := NewSlab(&heap{}, &heapPD{}, budgetOf(1<<30), verbs.AccessLocalWrite)
	p, err := s.Alloc(1<<10, ForGrowth)
	require.NoError(t, err)
	_, age := s.Free(p)
	require.True(t, age)
	s.Age()
	trim, again := s.Age()
	require.True(t, trim)
	require.False(t, again)
	require.NoError(t, s.Trim())
	require.Zero(t, s.Registered())
}

// TestLargeChunksAreKept: the chunk of a large ring is for one of the same size, and small rings are taken
// from chunks that are in use already, or from the smallest.
func TestLargeChunksAreKept(t *testing.T) {
	k := newBook(t, 1<<30)
	const large = 4 * ChunkSize
	_, age := k.free(k.alloc(large))
	require.True(t, age)
	k.alloc(1 << 10)
	k.has(large, 1)
	k.age(true)
	again := k.alloc(large)
	k.has(large, 1)
	k.age(false) // it is in use again
	k.free(again)
	k.age(true)
	k.age(false)
	k.has(0, 0)

	whole := k.alloc(ChunkSize)
	k.free(whole)
	for range 10 {
		k.alloc(1 << 10)
	}
	require.EqualValues(t, ChunkSize, k.s.spare, "small rings are in the chunk of the first")
	k.free(k.alloc(FirstChunk))
	k.has(ChunkSize, 1)
}

// TestSpareIsBounded: what is kept is bounded by maxSpare, by ample memory, and by what the Slab itself needs.
func TestSpareIsBounded(t *testing.T) {
	const large = 16 * ChunkSize
	k := newBook(t, 1<<40)
	k.alloc(1 << 10) // the first chunk is in use
	var pieces []Piece
	for range maxSpare/large + 1 {
		pieces = append(pieces, k.alloc(large))
	}
	trim, _ := k.free(pieces[1:]...)
	require.False(t, trim)
	trim, _ = k.free(pieces[0])
	require.True(t, trim, "enough are kept")
	require.NoError(t, k.s.Trim())
	k.has(maxSpare, maxSpare/large)

	k = newBook(t, 4*(3*large+FirstChunk))
	pieces = nil
	for range 4 {
		pieces = append(pieces, k.alloc(large))
	}
	trim, _ = k.free(pieces[0])
	require.True(t, trim, "more than a quarter is in use")
	require.NoError(t, k.s.Trim())
	trim, age := k.free(pieces[1:]...)
	require.False(t, trim)
	require.True(t, age)
	k.has(3*large, 3)
	k.alloc(8 * large) // not without what is kept
	k.has(8*large, 1)
	require.EqualValues(t, FirstChunk, k.s.spare)

	k = newBook(t, 1<<30)
	k.free(k.alloc(ChunkSize), k.alloc(large), k.alloc(ChunkSize))
	k.b.SetLimit(large)
	k.age(false)
	k.has(0, 0) // a large ring that is not used becomes a small one in the first chunk
}

// TestSlabsGiveBack: what one lane keeps is no reason for which another has no memory. Each has its first chunk
// left, or it would have none for the stream for which it has come up.
func TestSlabsGiveBack(t *testing.T) {
	k := newBook(t, 4*(5*ChunkSize+FirstChunk))
	other := NewSlab(&heap{}, &heapPD{}, k.b, verbs.AccessLocalWrite)
	var pieces []Piece
	for range 5 {
		pieces = append(pieces, k.alloc(ChunkSize))
	}
	k.free(pieces...)
	k.has(5*ChunkSize, 5)
	_, err := other.Alloc(16*ChunkSize, ForStream) // and not beside what is kept
	require.NoError(t, err)
	require.False(t, k.b.Short(), "nothing was refused")
	require.EqualValues(t, FirstChunk, k.s.Registered())
	require.EqualValues(t, FirstChunk+16*ChunkSize, k.b.InUse())
	_, err = other.Alloc(8*ChunkSize, ForStream)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.EqualValues(t, FirstChunk, k.s.Registered())
}

// TestChunksOnTheirWay: memory that waits for Trim is no reason for which anybody has none.
func TestChunksOnTheirWay(t *testing.T) {
	k := newBook(t, 4*ChunkSize)
	trim, _ := k.s.Free(k.alloc(2 * ChunkSize))
	require.True(t, trim, "more than a quarter is in use")
	k.alloc(3 * ChunkSize)
	k.has(3*ChunkSize, 1)
	require.NoError(t, k.s.Trim())
	k.has(3*ChunkSize, 1)
}

// useAtRandom does things with a Slab, and closes it.
func useAtRandom(t *testing.T, s *Slab, rnd *rand.Rand, things int, size func() uint32) {
	var pieces []Piece
	for range things {
		switch n := rnd.IntN(10); {
		case n < 5:
			if p, err := s.Alloc(size(), ForStream); err == nil {
				pieces = append(pieces, p)
			}
		case n < 8 && len(pieces) > 0:
			j := rnd.IntN(len(pieces))
			s.Free(pieces[j])
			pieces = slices.Delete(pieces, j, j+1)
		case n == 8:
			s.Age()
		default:
			assert.NoError(t, s.Trim())
		}
	}
	assert.NoError(t, s.Close())
}

// TestSlabsAtRandom: whatever lanes do with their memory at the same time, all of it is given back.
func TestSlabsAtRandom(t *testing.T) {
	b := budgetOf(100 * ChunkSize)
	var lanes sync.WaitGroup
	for i := range 4 {
		h, pd := &heap{}, &heapPD{}
		lanes.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range 20 {
				s := NewSlab(h, pd, b, verbs.AccessLocalWrite)
				useAtRandom(t, s, rnd, 200, func() uint32 { return ChunkSize >> 10 << rnd.IntN(14) })
			}
			assert.Zero(t, h.mapped.Load())
			assert.Zero(t, pd.registered.Load())
		})
	}
	lanes.Wait()
	require.Zero(t, b.InUse())
	require.Empty(t, b.keepers)
}

// TestSlabHeld: who looks at the memory keeps it mapped, though it is deregistered.
func TestSlabHeld(t *testing.T) {
	h, pd, b := &heap{}, &heapPD{}, budgetOf(1<<30)
	s := NewSlab(h, pd, b, verbs.AccessLocalWrite)
	p, err := s.Alloc(2*ChunkSize, ForStream)
	require.NoError(t, err)
	require.Len(t, p.Bytes(), 2*ChunkSize)
	s.Hold()
	require.NoError(t, s.Close())
	require.Zero(t, pd.registered.Load())
	require.EqualValues(t, 2*ChunkSize, h.mapped.Load())
	require.EqualValues(t, 2*ChunkSize, b.InUse())
	require.NoError(t, s.Release())
	require.Zero(t, h.mapped.Load())
	require.Zero(t, b.InUse())
}

// TestFullChunks: no call looks at chunks that are full, however many rings have one each; and where two have room,
// the older is filled.
func TestFullChunks(t *testing.T) {
	k := newBook(t, 1<<40)
	const chunks = 100
	var pieces []Piece
	for i := range chunks {
		pieces = append(pieces, k.alloc(ChunkSize<<(i%2)))
		require.Len(t, k.s.chunks, 1, "the first")
	}
	k.has(chunks*ChunkSize*3/2, chunks)
	half := func(i int) Piece { return pieces[i].Part(1, ChunkSize/2) }
	k.free(half(8), half(2), half(4))
	require.Len(t, k.s.chunks, 4)
	for _, i := range []int{2, 4, 8} {
		require.Equal(t, half(i), k.alloc(ChunkSize/2))
	}
	require.Len(t, k.s.chunks, 1)
	k.free(pieces...)
	require.Empty(t, k.s.full)
	require.Len(t, k.s.chunks, 1+chunks)
	require.NoError(t, k.s.Close())
	require.Zero(t, k.h.mapped.Load())
	require.Zero(t, k.pd.registered.Load())
}

// oneMemory is a device whose memory is always the same, which costs nothing.
type oneMemory struct {
	verbs.Context
	verbs.Memory
	b []byte
}

func (m oneMemory) AllocMemory(int, int) (verbs.Memory, error) { return m, nil }
func (m oneMemory) Bytes() []byte                              { return m.b }
func (m oneMemory) Close() error                               { return nil }

// BenchmarkManyChunks: what a ring costs beside as many others with a chunk each.
func BenchmarkManyChunks(b *testing.B) {
	one := oneMemory{b: make([]byte, ChunkSize)}
	s := NewSlab(one, &heapPD{}, budgetOf(1<<40), verbs.AccessLocalWrite)
	for b.Loop() {
		var pieces []Piece
		for range 8000 {
			p, err := s.Alloc(ChunkSize, ForGrowth)
			require.NoError(b, err)
			pieces = append(pieces, p)
		}
		for _, p := range pieces {
			if trim, _ := s.Free(p); trim {
				require.NoError(b, s.Trim())
			}
		}
	}
}
