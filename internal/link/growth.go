package link

import (
	"math/bits"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// growDue has a larger ring offered to the peer of a stream. mu is held.
func (e *laneEnd) growDue(s *stream) {
	if s.end.closed || s.st.Receiver().Ring().Size >= e.cfg.MaxRing {
		return
	}
	if s.in.wants = true; s.in.resizing || e.memory.refused {
		return
	}
	e.resizeDue(s)
}

func (e *laneEnd) resizeDue(s *stream) {
	s.in.resizing = true
	e.work.resize = append(e.work.resize, s)
	e.hasWork.Store(true)
}

const (
	// growthFactor is how much larger the next ring is, of one that shares a chunk and is full, or below tinyRing.
	growthFactor = 16
	tinyRing     = 16 << 10
	// chunkGrowth is that of all others: to back a chunk with pages takes as long as to move through a ring what
	// fills it, and what half of a smaller ring holds would use the pages of a whole chunk one after the other.
	chunkGrowth = 4
	// unreadGrowth is in place of it while the program has read nothing of the stream, or much of the process's memory
	// is used: of the last ring of a stream that nobody reads most may be empty, and others have to do without. It is
	// so while as few rings suffice as may hold unread bytes.
	unreadGrowth = 2
)

// larger returns the size of the ring that is offered in place of one that is too small. mu is held.
func (s *stream) larger() uint32 {
	rx, c := s.st.Receiver(), s.e.cfg
	size := rx.Ring().Size
	switch {
	case size < tinyRing, size < memory.ChunkSize && rx.Full():
		size = min(size*growthFactor, memory.ChunkSize)
	case size < memory.ChunkSize:
		size = min(size*chunkGrowth, memory.ChunkSize)
	case rx.ConsumedBytes() > 0 && c.Budget.Ample(), rx.Rings()+bits.Len32((c.MaxRing-1)/size) > lane.MaxRings:
		size *= chunkGrowth
	default:
		size *= unreadGrowth
	}
	return min(size, c.MaxRing)
}

// nextRing is the size of the ring to be offered, and what it is for: a larger one where the
// stream wants that, else the first size again. 0 means that the ring is right as it is. mu is
// held.
func (e *laneEnd) nextRing(s *stream) (size uint32, u memory.Use) {
	rx := s.st.Receiver()
	switch now := rx.Ring().Size; {
	case e.err != nil || s.end.closed || s.end.freed || s.st.Ended() || !rx.MayOffer():
	case now < s.in.least:
		return s.in.least, memory.ForGrowth
	case s.in.wants || rx.WantsRing(): // it may have been read by now
		switch {
		case s.holdsBack(): // another Read has begun
			s.in.wants = false
		case now < e.cfg.MaxRing:
			return s.larger(), memory.ForGrowth
		}
	case now > s.smallest() && rx.Buffered() == 0:
		return s.smallest(), memory.ForStream
	}
	return 0, 0
}

// resize offers the peer of a stream another ring.
func (e *laneEnd) resize(s *stream) {
	e.mu.Lock()
	size, u := e.nextRing(s)
	s.in.resizing = size > 0
	e.mu.Unlock()
	if size == 0 {
		return
	}
	p, err := e.slab.Alloc(size, u)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.in.resizing = false
	if err != nil {
		e.memoryRefused()
		return
	}
	if e.err != nil || s.end.closed || s.end.freed || e.state.Offer(s.st, p.Ring()) != nil {
		e.freePiece(p)
		return
	}
	e.counts.resizes++
	if u == memory.ForGrowth {
		s.counts.count().grown++
	}
	s.in.wants = false
	s.in.pieces = append(s.in.pieces, p)
	e.watch(s) // the peer may have ended what it sends
	e.settle()
}

// freePiece gives memory back that the peer writes to no more. mu is held.
func (e *laneEnd) freePiece(p memory.Piece) { e.freed(e.slab.Free(p)) }

// freed does what a Slab says that something was given back to, or that has aged. mu is held.
func (e *laneEnd) freed(trim, age bool) {
	if trim {
		e.work.trim = true
		e.hasWork.Store(true)
	}
	if age {
		e.watchMemory()
	}
}
