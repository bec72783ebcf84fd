//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const (
	maxQueue = 1 << shm.MaxQueueShift // requests in one work queue
	maxSGE   = 32
	maxMsg   = 1 << 31 // bytes of one message (IBA 9.3.2)
)

// recvQueue holds posted receives, of a QP or an SRQ. Any number may post, under
// mu; one takes, under the lock of the CQ or of the SRQ.
type recvQueue struct {
	max    int
	maxSGE int
	pd     *pd

	mu       sync.Mutex
	mask     uint32
	wrs      atomic.Pointer[[]recvWR] // nil as long as all that was posted is blank
	sges     []verbs.SGE              // maxSGE for each of wrs, made when first needed
	flush    bool                     // the QP is in ERR: what is posted is flushed
	open     bool                     // the QP is not in RESET
	posted   uint32                   // under mu; the same as tail
	shared   *shm.Mapping             // where the peer sees what is posted; nil before INIT
	tail     atomic.Uint32
	headSeen uint32       // next less held, as those who post saw it last
	_        [64]byte     // the two ends are used by different processors
	next     uint32       // receives taken
	tailSeen uint32       // tail, as the taker saw it last
	held     atomic.Int32 // taken, but their completions were not polled; of an SRQ the partial ones too
	_        [20]byte     // as of an Inbox
}

type recvWR struct {
	id  uint64
	sge uint32
	len uint32 // or LenRefused
}

// blankWR is a receive of no memory and WRID 0. WRITE_WITH_IMM needs no other, and
// many of them, so they are only counted.
var blankWR recvWR

func newRecvQueue(p *pd, n, sge int) *recvQueue {
	return &recvQueue{max: n, maxSGE: sge, pd: p, mask: uint32(1)<<bits.Len(uint(max(n, 1)-1)) - 1}
}

// post adds one receive; mu is held.
func (r *recvQueue) post(wr *verbs.RecvWR) error {
	if len(wr.SGList) > r.maxSGE {
		return fmt.Errorf("%w: receive of %d SGEs where %d are possible", verbs.ErrInvalid, len(wr.SGList), r.maxSGE)
	}
	if int(r.posted-r.headSeen) >= r.max {
		return verbs.ErrQueueFull
	}
	if wr.WRID != 0 || len(wr.SGList) > 0 || r.wrs.Load() != nil {
		size := r.keep(wr)
		if r.shared != nil { // where it says 0 for each at first
			r.show(r.posted, size)
		}
	}
	r.posted++
	return nil
}

// keep remembers a receive that is not blank and returns how many bytes it takes.
func (r *recvQueue) keep(wr *verbs.RecvWR) uint32 {
	wrs := r.wrs.Load()
	if wrs == nil {
		// Those before this one were blank, as the zero value is.
		made := make([]recvWR, r.mask+1)
		wrs = &made
		r.wrs.Store(wrs)
	}
	i := r.posted & r.mask
	w := &(*wrs)[i]
	w.id, w.sge, w.len = wr.WRID, uint32(len(wr.SGList)), 0
	if len(wr.SGList) > 0 {
		if r.sges == nil {
			r.sges = make([]verbs.SGE, (int(r.mask)+1)*r.maxSGE)
		}
		copy(r.sges[int(i)*r.maxSGE:][:r.maxSGE], wr.SGList)
		w.len = r.capacity(wr.SGList)
	}
	return w.len
}

// publish makes what was posted visible to the taker and to the peer; mu is held.
func (r *recvQueue) publish() {
	r.tail.Store(r.posted)
	if r.shared != nil {
		atomic.StoreUint32(r.shared.Posted, r.posted)
	}
}

// show tells the peer how many bytes a receive takes. Reading the word first
// keeps the line quiet where all receives are alike; nothing depends on it here.
func (r *recvQueue) show(n, size uint32) {
	if p := r.shared.LenOf(n); atomic.LoadUint32(p) != size {
		atomic.StoreUint32(p, size)
	}
}

// share opens the queue, which is empty, and begins to tell the peer through s, if there
// is one.
func (r *recvQueue) share(s *shm.Mapping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared, r.open = s, true
	r.posted, r.next, r.tailSeen = 0, 0, 0
	r.release() // of what is held from before
	r.tail.Store(0)
}

// unshare closes the queue, and ends that before the memory is unmapped.
func (r *recvQueue) unshare() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared, r.open, r.flush = nil, false, false
}

// capacity is how many bytes the SGEs take, or LenRefused if one is not valid.
func (r *recvQueue) capacity(sges []verbs.SGE) uint32 {
	total := uint64(0)
	for i := range sges {
		s := &sges[i]
		if s.Length != 0 && r.pd.local(s, verbs.AccessLocalWrite) == nil {
			return shm.LenRefused
		}
		total += uint64(s.Length)
	}
	return uint32(min(total, maxMsg))
}

// peek returns the oldest receive; the one who takes calls it.
func (r *recvQueue) peek() *recvWR {
	if r.next == r.tailSeen {
		if r.tailSeen = r.tail.Load(); r.next == r.tailSeen {
			return nil
		}
	}
	wrs := r.wrs.Load()
	if wrs == nil {
		return &blankWR
	}
	return &(*wrs)[r.next&r.mask]
}

// sgesOf returns the SGEs of what peek returned.
func (r *recvQueue) sgesOf(w *recvWR) []verbs.SGE {
	if w.sge == 0 {
		return nil
	}
	return r.sges[int(r.next&r.mask)*r.maxSGE:][:w.sge]
}

// hasRoom reports whether n receives can be posted, as far as those who post know. mu is held.
func (r *recvQueue) hasRoom(n int) bool { return int(r.posted-r.headSeen)+n <= r.max }

// release gives the places of what was taken, which is counted in next, back to those who post, but for those of
// which a completion waits: else a peer could have more of them wait than a CQ holds that has room for all that may
// be posted. mu is held, and the lock of the taker.
func (r *recvQueue) release() { r.headSeen = r.next - uint32(r.held.Load()) }

// local returns the memory that an SGE names, nil if the key is unknown, of
// another PD or of a window, without the right, or does not cover it.
func (p *pd) local(s *verbs.SGE, need verbs.AccessFlags) []byte {
	m := p.ctx.keys.lookup(s.LKey)
	if m == nil || m.pd != p || m.access&need != need || m.window != nil {
		return nil
	}
	return m.slice(s.Addr, s.Length)
}
