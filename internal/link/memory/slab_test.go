package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A heap is a device whose memory is Go's. It has nothing but what a Slab asks for.
type heap struct {
	verbs.Context
	mapped int // bytes
}

type heapPD struct {
	verbs.PD
	registered int // regions
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
	h.mapped += size
	return &heapMemory{of: h, b: make([]byte, size)}, nil
}

func (m *heapMemory) Bytes() []byte { return m.b }

func (m *heapMemory) Close() error {
	m.of.mapped -= len(m.b)
	return nil
}

func (pd *heapPD) RegMR([]byte, verbs.AccessFlags) (verbs.MR, error) {
	pd.registered++
	return &heapMR{of: pd}, nil
}

func (m *heapMR) Close() error {
	m.of.registered--
	return nil
}

// TestChunksGoBack: of chunks that are empty one is kept, unless memory is short.
func TestChunksGoBack(t *testing.T) {
	h, pd, b := &heap{}, &heapPD{}, budgetOf(1<<30)
	s := NewSlab(h, pd, b, verbs.AccessLocalWrite)
	books := func(bytes int) {
		t.Helper()
		require.EqualValues(t, bytes, b.InUse())
		require.EqualValues(t, bytes, s.Registered())
		require.Equal(t, bytes, h.mapped)
		require.Equal(t, bytes/ChunkSize, pd.registered)
	}
	var pieces []Piece
	for range 50 {
		p, err := s.Alloc(64<<10, ForGrowth)
		require.NoError(t, err)
		pieces = append(pieces, p)
	}
	books(13 * ChunkSize)
	trim := 0
	for _, p := range pieces {
		if s.Free(p) {
			trim++
		}
	}
	require.Equal(t, 12, trim)
	require.NoError(t, s.Trim())
	books(ChunkSize)
	b.SetLimit(0)
	_, err := s.Alloc(ChunkSize, ForGrowth)
	require.ErrorIs(t, err, verbs.ErrNoMemory, "growth leaves to the others what is registered")
	p, err := s.Alloc(ChunkSize, ForStream)
	require.NoError(t, err, "what is registered costs nothing")
	require.True(t, s.Free(p), "memory is short")
	require.NoError(t, s.Trim())
	books(0)
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
	require.Zero(t, pd.registered)
	require.Equal(t, 2*ChunkSize, h.mapped)
	require.EqualValues(t, 2*ChunkSize, b.InUse())
	require.NoError(t, s.Release())
	require.Zero(t, h.mapped)
	require.Zero(t, b.InUse())
}
