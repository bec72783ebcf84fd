package memory

import (
	"errors"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// ChunkSize is the memory that is registered at once, and goes when no ring is in it any more. A
// larger ring has a chunk of its own.
const ChunkSize = 256 << 10

// A Slab is the memory of the rings of one lane, or of its Buffers: chunks registered once, of
// which rings are taken as blocks of a power of two. It belongs to one pair of processes and is
// never given to another. Its methods may be called concurrently.
type Slab struct {
	ctx    verbs.Context
	pd     verbs.PD
	budget *Budget
	access verbs.AccessFlags

	mu     sync.Mutex
	chunks []*chunk
	empty  []*chunk // are to be deregistered
	users  int      // who may still look at the memory
	dead   bool
}

// NewSlab returns a Slab that registers memory of ctx in pd, for access, and takes it of b.
func NewSlab(ctx verbs.Context, pd verbs.PD, b *Budget, access verbs.AccessFlags) *Slab {
	return &Slab{ctx: ctx, pd: pd, budget: b, access: access}
}

type chunk struct {
	memory verbs.Memory
	mr     verbs.MR
	bytes  []byte
	blocks buddy
}

// A Piece is the memory of a ring, or of several that lie one behind the other.
type Piece struct {
	chunk *chunk
	off   uint32
	size  uint32
}

// IsZero reports whether p is no memory.
func (p Piece) IsZero() bool { return p.chunk == nil }

// Ring is how a peer is told of the piece.
func (p Piece) Ring() lane.Ring {
	return lane.Ring{Addr: p.Addr(), RKey: p.chunk.mr.RKey(), Size: p.size}
}

// Addr is the address by which devices know the piece.
func (p Piece) Addr() uint64 { return p.chunk.mr.Addr() + uint64(p.off) }

// LKey is the key by which this end's device sends from it.
func (p Piece) LKey() uint32 { return p.chunk.mr.LKey() }

// Part returns the i-th of the pieces of size bytes that p consists of.
func (p Piece) Part(i int, size uint32) Piece {
	return Piece{p.chunk, p.off + uint32(i)*size, size}
}

// Bytes is the memory.
func (p Piece) Bytes() []byte { return p.chunk.bytes[p.off:][:p.size] }

// tryAlloc takes a piece of what is registered already.
func (s *Slab) tryAlloc(size uint32) (Piece, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > ChunkSize || s.dead {
		return Piece{}, false
	}
	for _, c := range s.chunks {
		if off, ok := c.blocks.alloc(size); ok {
			return Piece{c, off, size}, true
		}
	}
	return Piece{}, false
}

// Alloc takes a piece for u, and registers memory for it if there is none. It may block.
func (s *Slab) Alloc(size uint32, u Use) (Piece, error) {
	if u == ForGrowth { // which takes from the others what is registered as well
		if err := s.budget.Take(0, u); err != nil {
			return Piece{}, err
		}
	}
	if p, ok := s.tryAlloc(size); ok {
		return p, nil
	}
	c, err := s.register(max(int(size), ChunkSize), u)
	if err != nil {
		return Piece{}, err
	}
	off, _ := c.blocks.alloc(size) // it is empty
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chunks = append(s.chunks, c)
	return Piece{c, off, size}, nil
}

// Prepare registers the memory of a first ring of size bytes.
func (s *Slab) Prepare(size uint32) error {
	p, err := s.Alloc(size, ForStream)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.chunk.blocks.free(p.off, p.size)
	return nil
}

func (s *Slab) register(size int, u Use) (_ *chunk, err error) {
	if err = s.budget.Take(size, u); err != nil {
		return nil, err
	}
	c := new(chunk)
	if c.memory, err = s.ctx.AllocMemory(size, size); err != nil {
		s.budget.Give(size)
		return nil, err
	}
	c.bytes = c.memory.Bytes()[:size]
	if c.mr, err = s.pd.RegMR(c.bytes, s.access); err != nil {
		s.budget.Give(size)
		return nil, errors.Join(err, c.memory.Close())
	}
	c.blocks = newBuddy(uint32(size))
	return c, nil
}

// Registered is the bytes that are.
func (s *Slab) Registered() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.chunks {
		n += int64(len(c.bytes))
	}
	return n
}

// Free gives a piece back, of which the peer writes to nothing any more. A chunk that is empty
// then waits for Trim, and Free reports so. One of those for many rings stays for the next,
// unless memory is short.
func (s *Slab) Free(p Piece) (trim bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.chunk.blocks.free(p.off, p.size)
	if s.dead || !p.chunk.blocks.whole() {
		return false
	}
	if len(p.chunk.bytes) == ChunkSize && !s.budget.Short() && !slices.ContainsFunc(s.chunks, func(c *chunk) bool {
		return c != p.chunk && len(c.bytes) == ChunkSize && c.blocks.whole()
	}) {
		return false
	}
	s.chunks = slices.DeleteFunc(s.chunks, func(c *chunk) bool { return c == p.chunk })
	s.empty = append(s.empty, p.chunk)
	return true
}

// Trim gives empty chunks back to the system. It may block.
func (s *Slab) Trim() error {
	s.mu.Lock()
	empty := s.empty
	s.empty = nil
	s.mu.Unlock()
	var errs []error
	for _, c := range empty {
		errs = append(errs, c.mr.Close(), s.unmap(c))
	}
	return errors.Join(errs...)
}

func (s *Slab) unmap(c *chunk) error {
	s.budget.Give(len(c.bytes))
	return c.memory.Close()
}

// Hold keeps the memory mapped until Release, whatever becomes of the lane.
func (s *Slab) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// Release ends one Hold.
func (s *Slab) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	return s.unmapAll()
}

// Close deregisters all memory, and unmaps it when nobody looks at it any more. The QP is
// destroyed.
func (s *Slab) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	s.chunks = append(s.chunks, s.empty...)
	s.empty = nil
	var err error
	for _, c := range s.chunks {
		err = errors.Join(err, c.mr.Close())
	}
	return errors.Join(err, s.unmapAll())
}

func (s *Slab) unmapAll() (err error) {
	if !s.dead || s.users > 0 {
		return nil
	}
	for _, c := range s.chunks {
		err = errors.Join(err, s.unmap(c))
	}
	s.chunks = nil
	return err
}
