package memory

import (
	"errors"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// ChunkSize is the memory that is registered at once. A larger ring has a chunk of its own.
const ChunkSize = 256 << 10

// maxSpare bounds the empty chunks that a Slab keeps for a while, in bytes: to register memory, to fill it
// with pages and to give it back takes longer than to move through a ring what many connections move.
const maxSpare = 64 << 20

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
	spare  int      // bytes of those that are empty
	keeps  bool     // the Budget knows of those that are to go, or may
	empty  []*chunk // are to be deregistered
	failed error    // of giveBack
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
	idle   bool // it was empty at the last Age, and is since
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
	if s.dead {
		return Piece{}, false
	}
	var spare *chunk
	for _, c := range s.chunks {
		switch {
		case len(c.bytes) != max(int(size), ChunkSize):
		case c.blocks.whole():
			spare = c // if no other will do
		default:
			if off, ok := c.blocks.alloc(size); ok {
				return Piece{c, off, size}, true
			}
		}
	}
	if spare == nil {
		return Piece{}, false
	}
	off, _ := spare.blocks.alloc(size)
	s.addSpare(-len(spare.bytes))
	return Piece{spare, off, size}, true
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
	if err != nil && s.reclaim() { // the device may have too little
		c, err = s.register(max(int(size), ChunkSize), u)
	}
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
	s.addSpare(len(p.chunk.bytes))
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

// Free gives a piece back, of which the peer writes to nothing any more. A chunk that is empty then stays for
// the next rings while there is ample memory, and Free reports that Age is to be called; else it waits for
// Trim, and Free reports that. One of those for many rings stays unless memory is short.
func (s *Slab) Free(p Piece) (trim, age bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := p.chunk
	c.blocks.free(p.off, p.size)
	if s.dead || !c.blocks.whole() {
		return false, false
	}
	n := len(c.bytes)
	if s.spare+n <= maxSpare && s.budget.ample() || n == ChunkSize && !s.budget.Short() && !slices.ContainsFunc(s.chunks, func(o *chunk) bool {
		return o != c && len(o.bytes) == ChunkSize && o.blocks.whole()
	}) {
		c.idle = false
		s.addSpare(n)
		return false, s.ages()
	}
	s.chunks = slices.DeleteFunc(s.chunks, func(o *chunk) bool { return o == c })
	s.empty = append(s.empty, c)
	s.note()
	return true, false
}

// addSpare counts bytes of empty chunks.
func (s *Slab) addSpare(n int) {
	s.spare += n
	s.note()
}

// note has the Budget know whether there are chunks that it can have back.
func (s *Slab) note() {
	if keeps := s.ages() || len(s.empty) > 0; keeps != s.keeps {
		s.keeps = keeps
		s.budget.keeps(s, keeps)
	}
}

// ages reports whether there are empty chunks besides the one that stays.
func (s *Slab) ages() bool { return s.spare != 0 && s.spare != ChunkSize }

// Age has chunks wait for Trim that were empty at the last Age and are since, or if memory is short all that
// are empty, but for one of those for many rings: a large ring needs it to become a small one. It reports
// whether any do, and whether it is to be called again.
func (s *Slab) Age() (trim, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	short := s.budget.Short()
	n := len(s.empty)
	s.leave(func(c *chunk) bool {
		leaves := short || c.idle
		c.idle = true
		return leaves
	})
	return len(s.empty) > n, s.ages()
}

// leave has those empty chunks wait for Trim of which leaves reports it, but for one of those for many rings.
func (s *Slab) leave(leaves func(*chunk) bool) {
	if s.dead {
		return
	}
	stays := false
	s.chunks = slices.DeleteFunc(s.chunks, func(c *chunk) bool {
		switch {
		case !c.blocks.whole():
			return false
		case !stays && len(c.bytes) == ChunkSize:
			stays = true
			return false
		case !leaves(c):
			return false
		}
		s.spare -= len(c.bytes)
		s.empty = append(s.empty, c)
		return true
	})
	s.note()
}

// giveBack gives empty chunks back to the system, but for one of those for many rings, and reports whether
// there were any. It may block, and whoever uses the Slab meanwhile: so the lane does not end under it.
func (s *Slab) giveBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(func(*chunk) bool { return true })
	some := !s.dead && len(s.empty) > 0
	if some {
		s.failed = errors.Join(s.failed, s.trim(s.empty))
		s.empty = nil
		s.note()
	}
	return some
}

// reclaim has this Slab and all others of the Budget give back what they keep, and reports whether that was
// anything.
func (s *Slab) reclaim() bool {
	if s.budget == nil {
		return s.giveBack()
	}
	return s.budget.reclaim(s.budget.InUse())
}

// Trim gives empty chunks back to the system. It may block.
func (s *Slab) Trim() error {
	defer s.budget.beginReclaim()()
	s.mu.Lock()
	empty, failed := s.empty, s.failed
	s.empty, s.failed = nil, nil
	s.note()
	s.mu.Unlock()
	return errors.Join(failed, s.trim(empty))
}

func (s *Slab) trim(empty []*chunk) (err error) {
	for _, c := range empty {
		err = errors.Join(err, c.mr.Close(), s.unmap(c))
	}
	return err
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
	s.spare, s.empty = 0, nil
	s.note()
	err := s.failed
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
