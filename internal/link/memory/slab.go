package memory

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
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
	first  uint32              // the size of a first ring; 0 before Prepare
	chunks []*chunk            // that have room, in the order of their numbers
	full   map[*chunk]struct{} // have none: where many rings have a chunk each, no call looks at all of them
	last   int                 // number of a chunk
	spare  int                 // bytes of those that are empty
	keeps  bool                // the Budget knows of those that are to go, or may
	empty  []*chunk            // are to be deregistered
	going  *chunk              // is being deregistered
	failed error               // of that
	users  int                 // who may still look at the memory
	dead   bool

	deregistering sync.WaitGroup // of going
}

// NewSlab returns a Slab that registers memory of ctx in pd, for access, and takes it of b.
func NewSlab(ctx verbs.Context, pd verbs.PD, b *Budget, access verbs.AccessFlags) *Slab {
	return &Slab{ctx: ctx, pd: pd, budget: b, access: access, full: make(map[*chunk]struct{})}
}

type chunk struct {
	memory verbs.Memory
	mr     verbs.MR
	bytes  []byte
	blocks buddy
	number int         // those that are used longest have the lowest, and are filled first
	idle   bool        // it was empty at the last Age, and is since
	gone   func(n int) // tells the Budget that it was given back
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
	spare := -1
	for i, c := range s.chunks {
		switch {
		case !c.serves(size):
		case c.blocks.whole():
			if spare < 0 || len(c.bytes) < len(s.chunks[spare].bytes) {
				spare = i // if no other will do
			}
		default:
			if off, ok := c.blocks.alloc(size); ok {
				s.filled(i)
				return Piece{c, off, size}, true
			}
		}
	}
	if spare < 0 {
		return s.allocEmpty(size)
	}
	c := s.chunks[spare]
	off, _ := c.blocks.alloc(size)
	s.filled(spare)
	s.addSpare(-len(c.bytes))
	return Piece{c, off, size}, true
}

// filled takes the i-th of chunks out if it has become full.
func (s *Slab) filled(i int) {
	if c := s.chunks[i]; c.blocks.full() && !s.dead {
		s.full[c] = struct{}{}
		s.chunks = slices.Delete(s.chunks, i, i+1)
	}
}

// add adds a chunk that is whole, and takes a piece of it.
func (s *Slab) add(c *chunk, size uint32) Piece {
	off, _ := c.blocks.alloc(size)
	s.last++
	c.number = s.last
	s.chunks = append(s.chunks, c)
	s.filled(len(s.chunks) - 1)
	return Piece{c, off, size}
}

// free gives the blocks of a piece back.
func (s *Slab) free(p Piece) {
	c := p.chunk
	if _, ok := s.full[c]; ok {
		delete(s.full, c)
		s.chunks = slices.Insert(s.chunks, s.find(c), c)
	}
	c.blocks.free(p.off, p.size)
}

// find returns the place of c among chunks.
func (s *Slab) find(c *chunk) int {
	i, _ := slices.BinarySearchFunc(s.chunks, c.number, func(c *chunk, n int) int { return c.number - n })
	return i
}

// allocEmpty takes a piece of a chunk that waits to be deregistered. So a lane whose peer lets go of none has
// no more memory than it has used at once.
func (s *Slab) allocEmpty(size uint32) (Piece, bool) {
	i := slices.IndexFunc(s.empty, func(c *chunk) bool { return c.serves(size) })
	if i < 0 {
		return Piece{}, false
	}
	c := s.empty[i]
	s.empty = slices.Delete(s.empty, i, i+1)
	p := s.add(c, size)
	s.note()
	return p, true
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
	n := max(int(size), least)
	if err := s.budget.Take(n, u); err != nil {
		return Piece{}, err
	}
	c, err := s.register(n)
	if err != nil && s.budget.reclaimAny() { // the device may have too little
		c, err = s.register(n)
	}
	if err != nil {
		s.budget.Give(n)
		return Piece{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(c, size), nil
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
	s.free(p)
	s.addSpare(len(p.chunk.bytes))
	return nil
}

// register makes a chunk of memory that was taken of the Budget.
func (s *Slab) register(size int) (_ *chunk, err error) {
	c := new(chunk)
	if c.memory, err = s.ctx.AllocMemory(size, size); err != nil {
		return nil, err
	}
	c.bytes = c.memory.Bytes()[:size]
	if c.mr, err = s.pd.RegMR(c.bytes, s.access); err != nil {
		return nil, errors.Join(err, c.memory.Close())
	}
	c.blocks = newBuddy(uint32(size))
	return c, nil
}

// Registered is the bytes that are.
func (s *Slab) Registered() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, chunks := range [][]*chunk{s.chunks, s.empty, slices.Collect(maps.Keys(s.full))} {
		for _, c := range chunks {
			n += int64(len(c.bytes))
		}
	}
	if s.going != nil {
		n += int64(len(s.going.bytes))
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
	s.free(p)
	switch n := len(c.bytes); {
	case s.dead:
		return false, false
	case !c.blocks.whole():
		if s.spare == 0 {
			return false, false
		}
		s.note() // an empty chunk may not be needed any more
		return false, s.ages()
	case s.spare+n <= maxSpare && s.budget.Ample() || c == s.needed() && !s.budget.Short():
		c.idle = false
		s.addSpare(n)
		return false, s.ages()
	}
	i := s.find(c)
	s.chunks = slices.Delete(s.chunks, i, i+1)
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

// giveBack gives empty chunks back to the system, but for what needed returns, as Trim does.
func (s *Slab) giveBack() {
	s.mu.Lock()
	s.leave(func(*chunk) bool { return true })
	s.mu.Unlock()
	s.trim()
}

// Trim gives empty chunks back to the system. It may block, but not for a peer: where those have to let go of the
// memory first, it goes on behind Trim. The error is about what was given back since the last call.
func (s *Slab) Trim() error {
	s.trim()
	return s.takeFailed()
}

func (s *Slab) takeFailed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.failed
	s.failed = nil
	return err
}

func (s *Slab) trim() {
	c := s.nextEmpty(nil)
	if c == nil {
		return
	}
	if _, ok := c.mr.(driver.PatientMR); ok {
		go s.deregister(c)
	} else {
		s.deregister(c)
	}
}

// nextEmpty returns the chunk to be deregistered behind was, which must have been. It returns nil if there is
// none, and if another is being deregistered.
func (s *Slab) nextEmpty(was *chunk) (c *chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.going != was {
		return nil
	}
	if !s.dead && len(s.empty) > 0 {
		c = s.empty[0]
		s.empty = slices.Delete(s.empty, 0, 1)
		s.note()
		c.gone = s.budget.goes() // before was has gone, or who waits would expect no more
		s.deregistering.Add(1)
	}
	if s.going = c; was != nil {
		was.gone(len(was.bytes))
		s.deregistering.Done()
	}
	return c
}

// deregister gives empty chunks back to the system, from c on. It does so one by one: a peer that does not let
// go is asked for one alone, or its socket would be full of questions. No lock is held.
func (s *Slab) deregister(c *chunk) {
	for ; c != nil; c = s.nextEmpty(c) {
		if err := errors.Join(closePatiently(c.mr), c.memory.Close()); err != nil {
			s.mu.Lock()
			s.failed = errors.Join(s.failed, err)
			s.mu.Unlock()
		}
	}
}

// closePatiently closes an MR of a QP that may be connected.
func closePatiently(mr verbs.MR) error {
	if p, ok := mr.(driver.PatientMR); ok {
		return p.ClosePatiently()
	}
	return mr.Close()
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
// destroyed, so no peer is waited for.
func (s *Slab) Close() error {
	s.mu.Lock()
	s.dead = true
	s.chunks = slices.AppendSeq(append(s.chunks, s.empty...), maps.Keys(s.full))
	s.spare, s.empty, s.full = 0, nil, nil
	s.note()
	s.users++ // until all is deregistered
	chunks := s.chunks
	s.mu.Unlock()
	s.deregistering.Wait()
	err := s.takeFailed()
	for _, c := range chunks {
		err = errors.Join(err, c.mr.Close())
	}
	return errors.Join(err, s.Release())
}

// unmapAll unmaps the memory when it is deregistered and nobody looks at it. mu is held.
func (s *Slab) unmapAll() (err error) {
	if !s.dead || s.users > 0 {
		return nil
	}
	for _, c := range s.chunks {
		err = errors.Join(err, c.memory.Close())
		s.budget.Give(len(c.bytes))
	}
	s.chunks = nil
	return err
}
