package link

import (
	"errors"
	"math/bits"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

const (
	// chunkSize is the memory that is registered at once, and goes when no ring is in it any
	// more. A larger ring has a chunk of its own.
	chunkSize = 256 << 10
	minBlock  = lane.MinRing
)

// slab is the memory of the rings of one lane, or of its Buffers: chunks registered once, of which rings are
// taken as blocks of a power of two. It belongs to one pair of processes and is never given
// to another.
type slab struct {
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

type chunk struct {
	memory verbs.Memory
	mr     verbs.MR
	bytes  []byte
	blocks buddy
}

// A piece is the memory of a ring, or of several that lie one behind the other.
type piece struct {
	chunk *chunk
	off   uint32
	size  uint32
}

// ring is how a peer is told of the piece.
func (p piece) ring() lane.Ring {
	return lane.Ring{Addr: p.chunk.mr.Addr() + uint64(p.off), RKey: p.chunk.mr.RKey(), Size: p.size}
}

// part returns the i-th of the pieces of size bytes that p consists of.
func (p piece) part(i int, size uint32) piece {
	return piece{p.chunk, p.off + uint32(i)*size, size}
}

func (p piece) bytes() []byte { return p.chunk.bytes[p.off:][:p.size] }

// tryAlloc takes a piece of what is registered already.
func (s *slab) tryAlloc(size uint32) (piece, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > chunkSize || s.dead {
		return piece{}, false
	}
	for _, c := range s.chunks {
		if off, ok := c.blocks.alloc(size); ok {
			return piece{c, off, size}, true
		}
	}
	return piece{}, false
}

// alloc takes a piece for u, and registers memory for it if there is none. It may block.
func (s *slab) alloc(size uint32, u use) (piece, error) {
	if u == useGrowth { // which takes from the others what is registered as well
		if err := s.budget.take(0, u); err != nil {
			return piece{}, err
		}
	}
	if p, ok := s.tryAlloc(size); ok {
		return p, nil
	}
	c, err := s.register(max(int(size), chunkSize), u)
	if err != nil {
		return piece{}, err
	}
	off, _ := c.blocks.alloc(size) // it is empty
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chunks = append(s.chunks, c)
	return piece{c, off, size}, nil
}

// prepare registers the memory of a first ring of size bytes.
func (s *slab) prepare(size uint32) error {
	p, err := s.alloc(size, useStream)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.chunk.blocks.free(p.off, p.size)
	return nil
}

func (s *slab) register(size int, u use) (_ *chunk, err error) {
	if err = s.budget.take(size, u); err != nil {
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

// registered is the bytes that are.
func (s *slab) registered() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.chunks {
		n += int64(len(c.bytes))
	}
	return n
}

// free gives a piece back, of which the peer writes to nothing any more. A chunk that is empty
// then waits for trim, and free reports so. One of those for many rings stays for the next,
// unless memory is short.
func (s *slab) free(p piece) (trim bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.chunk.blocks.free(p.off, p.size)
	if s.dead || !p.chunk.blocks.whole() {
		return false
	}
	if len(p.chunk.bytes) == chunkSize && !s.budget.short() && !slices.ContainsFunc(s.chunks, func(c *chunk) bool {
		return c != p.chunk && len(c.bytes) == chunkSize && c.blocks.whole()
	}) {
		return false
	}
	s.chunks = slices.DeleteFunc(s.chunks, func(c *chunk) bool { return c == p.chunk })
	s.empty = append(s.empty, p.chunk)
	return true
}

// trim gives empty chunks back to the system. It may block.
func (s *slab) trim() error {
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

func (s *slab) unmap(c *chunk) error {
	s.budget.Give(len(c.bytes))
	return c.memory.Close()
}

// hold keeps the memory mapped until release, whatever becomes of the lane.
func (s *slab) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

func (s *slab) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	return s.unmapAll()
}

// close deregisters all memory, and unmaps it when nobody looks at it any more. The QP is
// destroyed.
func (s *slab) close() error {
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

func (s *slab) unmapAll() (err error) {
	if !s.dead || s.users > 0 {
		return nil
	}
	for _, c := range s.chunks {
		err = errors.Join(err, s.unmap(c))
	}
	s.chunks = nil
	return err
}

// buddy divides memory into blocks whose size is a power of two. Block i of order o begins
// at i times minBlock<<o.
type buddy struct {
	blocks [][]uint64 // by order, a bit for each block that is free
}

func newBuddy(size uint32) buddy {
	orders := bits.Len32(size / minBlock)
	b := buddy{blocks: make([][]uint64, orders)}
	for o := range b.blocks {
		b.blocks[o] = make([]uint64, (size/minBlock>>o+63)/64)
	}
	b.blocks[orders-1][0] = 1
	return b
}

func order(size uint32) int { return bits.Len32(size/minBlock) - 1 }

// alloc takes a block of size bytes, a power of two from minBlock on.
func (b *buddy) alloc(size uint32) (off uint32, ok bool) {
	want := order(size)
	for o := want; o < len(b.blocks); o++ {
		for w, word := range b.blocks[o] {
			if word == 0 {
				continue
			}
			i := w*64 + bits.TrailingZeros64(word)
			b.flip(o, i)
			for ; o > want; o-- { // the upper halves are free
				i *= 2
				b.flip(o-1, i+1)
			}
			return uint32(i) << want * minBlock, true
		}
	}
	return 0, false
}

// free gives back a block, or a part of one that is one itself.
func (b *buddy) free(off, size uint32) {
	o := order(size)
	i := int(off / minBlock >> o)
	for ; o < len(b.blocks)-1 && b.isFree(o, i^1); o++ {
		b.flip(o, i^1)
		i /= 2
	}
	b.flip(o, i)
}

// whole reports whether all is free.
func (b *buddy) whole() bool { return b.blocks[len(b.blocks)-1][0] != 0 }

func (b *buddy) isFree(o, i int) bool { return b.blocks[o][i/64]>>(i%64)&1 != 0 }
func (b *buddy) flip(o, i int)        { b.blocks[o][i/64] ^= 1 << (i % 64) }
