package rdmanet

import (
	"errors"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

const (
	sendBlockSize = 64 << 10
	maxSendBlocks = 4
	// deniedPause is for how long what blocks there are must do, where there was no memory
	// for one more.
	deniedPause = time.Second
)

// sendBlocks are the registered memory that a Conn sends from. Blocks are made
// when first needed; a device that takes all data inline needs none but for
// ReadFrom and Reserve. The send half's lock guards them.
type sendBlocks struct {
	all    []*sendBlock
	cur    *sendBlock    // Write fills it from used on
	denied int32         // blocks that the system or the memory limit would not give
	missed bool          // Write once had to do without
	again  time.Duration // since epoch: when to ask once more for those denied
}

// A sendBlock is a piece of registered memory.
type sendBlock struct {
	buf   []byte
	mr    verbs.MR
	used  int
	last  uint64 // sendQueue.posted after the last request that reads it
	taken bool   // by cur, or by a ReadFrom or Reserve
}

// source is the block's memory from off on.
func (b *sendBlock) source(off int) source {
	return source{bytes: b.buf[off:], addr: b.mr.Addr() + uint64(off), lkey: b.mr.LKey()}
}

// free says that the device is done with the block.
func (b *sendBlock) free(q *sendQueue) bool { return !b.taken && b.last <= q.completed }

// take returns a block for the caller alone, nil with no error if the device must
// complete something first. Blocks that calls hold do not count against the bound:
// there is at most one for each call.
func (s *sendBlocks) take(e *endpoint, q *sendQueue) (*sendBlock, error) {
	for _, b := range s.all {
		if b.free(q) {
			b.taken, b.used = true, 0
			return b, nil
		}
	}
	if s.mustWait() {
		return nil, nil
	}
	b, err := newSendBlock(e)
	if err != nil {
		if sending, used := s.busy(); sending > 0 {
			s.denied, s.again = int32(maxSendBlocks-used), time.Since(epoch)+deniedPause
			return nil, nil
		}
		return nil, err
	}
	s.all, s.denied = append(s.all, b), 0
	return b, nil
}

// busy counts the blocks that nobody holds and the device is still sending, and
// those together with the one that Write fills.
func (s *sendBlocks) busy() (sending, used int) {
	for _, b := range s.all {
		if !b.taken {
			sending++
		}
	}
	used = sending
	if s.cur != nil {
		used++
	}
	return sending, used
}

// mustWait says, where no block is free, that there are to be no more.
func (s *sendBlocks) mustWait() bool {
	sending, used := s.busy()
	if sending == 0 || used < maxSendBlocks-int(s.denied) {
		return false
	}
	return used >= maxSendBlocks || time.Since(epoch) < s.again
}

func newSendBlock(e *endpoint) (*sendBlock, error) {
	memory, err := e.pinned.alloc(e.pd.Context(), sendBlockSize, sendBlockSize, sendBlockSize)
	if err != nil {
		return nil, err
	}
	mr, err := e.pd.RegMR(memory.Bytes()[:sendBlockSize], verbs.AccessLocalWrite)
	if err != nil {
		return nil, errors.Join(err, e.pinned.free(memory, sendBlockSize))
	}
	return &sendBlock{buf: memory.Bytes()[:sendBlockSize], mr: mr, taken: true}, nil
}

// give returns a block; it is free when what was posted from it has completed.
func (s *sendBlocks) give(b *sendBlock) { b.taken = false }

// current is the block that Write copies into, with room for at least one byte;
// nil with no error if none is to be had until completions arrive. No bytes are gathered.
func (s *sendBlocks) current(e *endpoint, q *sendQueue) (*sendBlock, error) {
	if s.cur != nil {
		switch {
		case s.cur.last <= q.completed:
			s.cur.used = 0
		case s.cur.used == len(s.cur.buf):
			s.give(s.cur)
			s.cur = nil
		}
	}
	if s.cur == nil {
		var err error
		if s.cur, err = s.take(e, q); err != nil {
			return nil, err
		}
	}
	return s.cur, nil
}

// ready says whether take, or for Write current, would return a block.
func (s *sendBlocks) ready(q *sendQueue, take bool) bool {
	if !take && s.cur != nil && (s.cur.used < len(s.cur.buf) || s.cur.last <= q.completed) {
		return true
	}
	for _, b := range s.all {
		if b.free(q) {
			return true
		}
	}
	return !s.mustWait()
}

// close deregisters the blocks; nothing is posted any more.
func (s *sendBlocks) close() (errs []error) {
	for _, b := range s.all {
		errs = append(errs, b.mr.Close())
	}
	s.all, s.cur = nil, nil
	return errs
}
