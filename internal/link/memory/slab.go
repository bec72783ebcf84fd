package memory

import (
	"errors"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	// FirstChunk is for Prepare where memory is dear: a lane that has but few streams needs no more.
	FirstChunk = 64 << 10
	// ChunkSize is what is registered at once then. A larger ring has a chunk of its own.
	ChunkSize = 256 << 10
)

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
	first  uint32 // the size of a first ring; 0 before Prepare
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

// shared reports whether c is for many rings.
func (c *chunk) shared() bool { return len(c.bytes) <= ChunkSize }

// serves reports whether c is for rings of size bytes.
func (c *chunk) serves(size uint32) bool {
	if size > ChunkSize {
		return len(c.bytes) == int(size)
	}
	return c.shared() && len(c.bytes) >= int(size)
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
		case !c.serves(size):
		case c.blocks.whole():
			if spare == nil || len(c.bytes) < len(spare.bytes) {
				spare = c // if no other will do
			}
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
func (s *Slab) Alloc(size uint32, u Use) (Piece, error) { return s.alloc(size, ChunkSize, u) }

// alloc is Alloc, of a chunk that has least bytes if it is to be registered.
func (s *Slab) alloc(size uint32, least int, u Use) (Piece, error) {
	if u == ForGrowth { // which takes from the others what is registered as well
		if err := s.budget.Take(0, u); err != nil {
			return Piece{}, err
		}
	}
	if p, ok := s.tryAlloc(size); ok {
		return p, nil
	}
	c, err := s.register(max(int(size), least), u)
	if err != nil && s.reclaim() { // the device may have too little
		c, err = s.register(max(int(size), least), u)
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

// Prepare registers the memory of the first rings, which have size bytes: chunk bytes, or one ring if that is
// larger. It is to be called before Alloc.
func (s *Slab) Prepare(size uint32, chunk int) error {
	p, err := s.alloc(size, chunk, ForStream)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = size
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
// Trim, and Free reports that. What needed returns stays unless memory is short.
func (s *Slab) Free(p Piece) (trim, age bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := p.chunk
	c.blocks.free(p.off, p.size)
	switch n := len(c.bytes); {
	case s.dead:
		return false, false
	case !c.blocks.whole():
		if s.spare == 0 {
			return false, false
		}
		s.note() // an empty chunk may not be needed any more
		return false, s.ages()
	case s.spare+n <= maxSpare && s.budget.ample() || c == s.needed() && !s.budget.Short():
		c.idle = false
		s.addSpare(n)
		return false, s.ages()
	}
	s.chunks = slices.DeleteFunc(s.chunks, func(o *chunk) bool { return o == c })
	s.empty = append(s.empty, c)
	s.note()
	return true, false
}

// needed returns the empty chunk that stays, if one does: the smallest for many rings, where no other has room for
// a first ring. A stream for which the lane has come up needs it, and a large ring that is to become a small
// one.
func (s *Slab) needed() (c *chunk) {
	for _, o := range s.chunks {
		switch {
		case s.first == 0 || !o.shared():
		case !o.blocks.whole():
			if o.blocks.has(s.first) {
				return nil
			}
		case c == nil || len(o.bytes) < len(c.bytes):
			c = o
		}
	}
	return c
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
func (s *Slab) ages() bool {
	if c := s.needed(); c != nil {
		return s.spare > len(c.bytes)
	}
	return s.spare > 0
}

// Age has chunks wait for Trim that were empty at the last Age and are since, or if memory is short all that
// are empty, but for what needed returns. It reports whether any do, and whether it is to be called again.
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

// leave has those empty chunks wait for Trim of which leaves reports it, but for what needed returns.
func (s *Slab) leave(leaves func(*chunk) bool) {
	if s.dead {
		return
	}
	stays := s.needed()
	s.chunks = slices.DeleteFunc(s.chunks, func(c *chunk) bool {
		if c == stays || !c.blocks.whole() || !leaves(c) {
			return false
		}
		s.spare -= len(c.bytes)
		s.empty = append(s.empty, c)
		return true
	})
	s.note()
}

// giveBack gives empty chunks back to the system, but for what needed returns, and reports whether there were
// any. It may block, and whoever uses the Slab meanwhile: so the lane does not end under it.
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
