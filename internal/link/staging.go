package link

import (
	"slices"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// The send memory of a lane, which bounds what is posted on it and not completed on a device that looks at
// the source after the post. A lane begins with room for one message, and has mostStaging bytes while its
// streams send much.
const (
	firstStaging = lane.MaxMessage
	mostStaging  = memory.ChunkSize
)

// staging gives out send memory in order, as a ring: requests complete in order as well.
// What was taken may be filled without a lock. The lane's lock guards the rest.
type staging struct {
	memory  []byte
	addr    uint64 // of its first byte
	lkey    uint32
	head    int // where the next piece begins
	entries []*staged
	former  int // how many of them, the first ones, lie in memory that was there before
	spare   []*staged
	turns   sendTurns

	large   memory.Piece // memory, where it is not that of the endpoint
	growing bool
	used    bool // since the last look
	unused  int  // looks in a row that found it so
}

// staged is a piece of send memory.
type staged struct {
	off    int
	bytes  []byte
	framed bool   // it begins with room for a header
	addr   uint64 // of its first byte
	lkey   uint32
	last   uint64 // sendQueue.posted behind the last request that reads it; 0 until then
	unused bool   // no request does
}

// use has what is taken from now on lie in other memory.
func (s *staging) use(b []byte, addr uint64, lkey uint32) {
	s.memory, s.addr, s.lkey, s.head, s.former = b, addr, lkey, 0, len(s.entries)
}

// take returns n bytes that lie together, nil if there are none now.
func (s *staging) take(n int) *staged {
	at, size := s.head, len(s.memory)
	if taken := s.entries[s.former:]; len(taken) > 0 {
		tail := taken[0].off
		switch {
		case at > tail && at+n > size: // what is left there is skipped
			at = 0
			fallthrough
		case at <= tail:
			if at+n > tail {
				return nil
			}
		}
	} else {
		at = 0
	}
	if at+n > size {
		return nil
	}
	var e *staged
	if k := len(s.spare); k > 0 {
		e, s.spare = s.spare[k-1], s.spare[:k-1]
	} else {
		e = new(staged)
	}
	*e = staged{off: at, bytes: s.memory[at:][:n], addr: s.addr + uint64(at), lkey: s.lkey}
	s.head = at + n
	s.used = true
	s.entries = append(s.entries, e)
	return e
}

// free returns how many bytes nobody has, some of which may not lie together.
func (s *staging) free() int {
	taken := s.entries[s.former:]
	switch {
	case len(taken) == 0:
		return len(s.memory)
	case s.head > taken[0].off:
		return len(s.memory) - s.head + taken[0].off
	}
	return taken[0].off - s.head
}

// freed takes back what completed requests have read, and reports whether that was anything.
func (s *staging) freed(completed uint64) bool {
	n := 0
	for n < len(s.entries) && (s.entries[n].unused || s.entries[n].last-1 < completed) { // 0 wraps around
		n++
	}
	s.spare = append(s.spare, s.entries[:n]...)
	s.entries = slices.Delete(s.entries, 0, n)
	s.former = max(s.former-n, 0)
	return n > 0
}

// stagingDue has more send memory made, if that is possible. mu is held.
func (e *laneEnd) stagingDue() {
	if s := &e.staging; s.large.IsZero() && !s.growing && !e.memory.refused {
		s.growing = true
		e.work.stage = true
		e.hasWork.Store(true)
	}
}

// growStaging makes more send memory.
func (e *laneEnd) growStaging() {
	p, err := e.buffers.slab.Alloc(mostStaging, memory.ForGrowth)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.staging.growing = false
	switch {
	case err != nil:
		e.memoryRefused() // the device's or the process's: Writes go on with what there is
	case e.err != nil:
		e.freed(e.buffers.slab.Free(p))
	default:
		e.staging.large, e.staging.unused = p, 0
		e.staging.use(p.Bytes(), p.Addr(), p.LKey())
		e.watchMemory()
		e.unblockAndSettle()
	}
}

// useFirstStaging has what is sent lie in the memory of the endpoint. mu is held.
func (e *laneEnd) useFirstStaging() {
	e.staging.use(e.p.local.Bytes()[:firstStaging], e.p.localMR.Addr(), e.p.localMR.LKey())
}

// lookAtStaging has send memory shrink that was found unused often enough, and reports whether it is to be
// looked at again. mu is held.
func (e *laneEnd) lookAtStaging(enough int) bool {
	s := &e.staging
	if s.large.IsZero() {
		return false
	}
	if s.unused++; s.used || len(s.entries) > 0 {
		s.unused = 0
	}
	s.used = false
	if s.unused < enough || e.err != nil {
		return true
	}
	p := s.large
	s.large = memory.Piece{}
	e.useFirstStaging()
	e.freed(e.buffers.slab.Free(p))
	return false
}
