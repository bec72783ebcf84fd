//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"golang.org/x/sys/unix"
)

// A segment is a memfd in which memory and the inbox of the QP that it is for lie one
// behind the other (queue.go): what an idle connection needs of both is on one page, and
// the peer maps both at once. The last of the two to go gives it back.
//
// Whoever has the file can write to the queue. It is for one QP, therefore: while that has
// its inbox there, the memory is shown to no peer of another, and when it was, no inbox is
// made there any more.
type segment struct {
	geometry
	fd   int
	data []byte

	mu      sync.Mutex
	claimed bool  // the inbox was made
	shown   bool  // the file was given to a peer that is not that of the inbox
	users   int32 // of the inbox and the memory
	qp      *qp   // whose inbox is there now
}

// mayJoin says whether a queue of so many receives can lie in a segment. Without populate
// all of it would have to be backed at once.
func mayJoin(receives int) bool { return receives >= 1 && receives <= maxQueue && canPopulate() }

// AllocQueueMemory is verbs.QueueMemoryAllocator.
func (c *devContext) AllocQueueMemory(size, committed, receives int) (verbs.Memory, error) {
	if !mayJoin(receives) {
		return c.AllocMemory(size, committed)
	}
	if err := c.hold(); err != nil {
		return nil, err
	}
	m, err := newQueueMemory(c, size, committed, receives)
	if err != nil {
		c.release()
		return nil, err
	}
	return m, nil
}

// newQueueMemory makes memory in a segment that has room for the inbox of a QP of that many
// receives.
func newQueueMemory(ctx *devContext, size, committed, receives int) (*memory, error) {
	if err := checkMemory(size, committed); err != nil {
		return nil, err
	}
	g := geometryFor(receives)
	g.joint = true
	off := g.memoryOff()
	fd, data, err := newSealed("rdma-soft-memory", pageUp(off+size), 0, false)
	if err != nil {
		return nil, err
	}
	s := &segment{geometry: g, fd: fd, data: data, users: 1}
	if err := fallocate(fd, g.firstPage(), pageUp(off+committed)-g.firstPage()); err != nil {
		_ = s.release()
		return nil, err
	}
	m := &memory{ctx: ctx, fd: fd, data: data[off:], off: off, segment: s}
	m.first = m.pageUp(committed)
	m.committed = m.first
	ctx.mems.add(m)
	return m, nil
}

// makeInbox returns an inbox for q, which is on ln, or nil: a new one, or the one that the
// peer on ln has mapped.
func (s *segment) makeInbox(q *qp, ln *line) *inbox {
	in := ln.takeInbox(s.geometry, s)
	s.mu.Lock()
	if s.shown || s.qp != nil || in == nil && s.claimed {
		s.mu.Unlock()
		if in != nil {
			in.close()
		}
		return nil
	}
	defer s.mu.Unlock()
	if in == nil {
		in = &inbox{fd: s.fd, segment: s, reach: s.first()}
		in.init(s.data, s.geometry)
		in.begin()
		s.users++
	}
	s.claimed, s.qp = true, q
	return in
}

// mayShow says whether the file may be given to the peer of q.
func (s *segment) mayShow(q *qp) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.qp == nil {
		s.shown = true
	}
	return s.qp == nil || s.qp == q
}

// leave is told that the QP is through with its inbox.
func (s *segment) leave() {
	if s != nil {
		s.mu.Lock()
		s.qp = nil
		s.mu.Unlock()
	}
}

// release drops the inbox or the memory.
func (s *segment) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	err := munmap(s.data)
	s.data = nil
	unix.Close(s.fd)
	return os.NewSyscallError("munmap", err)
}

// trimJoint is trim of memory in a segment, and of the inbox there.
func (m *memory) trimJoint(in *inbox) error {
	var st unix.Stat_t
	first, end := m.segment.firstPage(), m.off+m.first
	if err := unix.Fstat(m.fd, &st); err != nil || st.Blocks*512 <= int64(end-first) {
		return err
	}
	for _, hole := range [][2]int{{0, first}, {end, len(m.segment.data)}} {
		if hole[0] == hole[1] {
			continue
		}
		if err := unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(hole[0]), int64(hole[1]-hole[0])); err != nil {
			return err
		}
	}
	m.committed, m.sharing.known = m.first, false
	in.reach, in.noLens, in.sharing.known = in.first(), true, false
	return nil
}
