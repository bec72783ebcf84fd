package rdmanet

import (
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
)

// Growth of the receive ring (docs/PROTOCOL.md, section 10). The address never
// changes. Where the device is done with the source when the post returns, memory that
// is registered costs nothing until it is backed, and the key never changes either. On other
// devices registered memory is pinned: the larger ring is registered when it is
// granted, under a key of its own, and the smaller one goes when the peer has
// changed over to it.

// growthStep is how many times larger a ring gets that its peer has filled: it begins
// small, and is to be as large as it may be when the first megabyte has passed.
const growthStep = 4

// grow enlarges the receive ring if its bound, the memory limit and the system
// allow; otherwise the ring stays as it is. The caller holds mu.
func (r *receiveHalf) grow(size uint32) {
	if size > r.ep.maxRing || size <= r.ring.Size() || r.ring.Growing() {
		return
	}
	if err := r.ep.enlarge(size); err != nil {
		r.ep.maxRing = r.ring.Size()
		r.ep.log(slog.LevelWarn, "rdmanet: receive ring stays small", "size", r.ring.Size(), "wanted", size, "err", err)
		return
	}
	if err := r.ring.Grow(size); err != nil {
		r.ep.maxRing = r.ring.Size()
		return
	}
	r.stats.grown++
}

// registerRing registers the credit block and a ring of size bytes. What the peer may read
// there, it has written.
func (e *endpoint) registerRing(size uint32) (verbs.MR, error) {
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if e.confirm != nil {
		access |= verbs.AccessRemoteRead
	}
	return e.pd.RegMR(e.memory.Bytes()[:ring.DataOffset+int(size)], access)
}

// enlarge makes ready for a receive ring of size bytes.
func (e *endpoint) enlarge(size uint32) error {
	if !e.synchronous && !e.rekeys {
		return fmt.Errorf("%w: the peer knows of no growth with a new rkey", verbs.ErrNotSupported)
	}
	granted := ring.DataOffset + int(size)
	if err := e.pinned.grant(e.memory, e.granted, granted, e.onDemand); err != nil {
		return err
	}
	e.looked = min(e.looked, uint64(e.granted-ring.DataOffset))
	e.granted = granted
	if e.synchronous {
		return nil
	}
	mr, err := e.registerRing(size)
	if err == nil {
		e.grown = mr
	}
	return err
}

// look makes ready for a look at the first n bytes of the stream: a peer that says it
// has written them may lie, and where nobody wrote there need not be memory.
func (e *endpoint) look(n uint64) error {
	size := uint64(e.granted - ring.DataOffset)
	if n = max(n, 2*e.looked); n >= size {
		n = size
	}
	if err := e.memory.Commit(ring.DataOffset + int(n)); err != nil {
		return err
	}
	if e.looked = n; n == size {
		e.looked = math.MaxUint64 // until the ring grows
	}
	return nil
}

// ringKey is the key of the ring as granted.
func (e *endpoint) ringKey() uint32 {
	if e.grown != nil {
		return e.grown.RKey()
	}
	return e.mr.RKey()
}

// changeOver drops the key of the smaller ring. All that the peer sent under it has
// been executed, since it sent what told of the change later.
func (e *endpoint) changeOver() {
	if e.grown == nil {
		return
	}
	former := e.mr
	e.mr, e.grown = e.grown, nil
	if e.confirm != nil && former == e.confirm.mr {
		return // the peer reads there
	}
	if e.retiring == nil {
		e.retiring = new(sync.WaitGroup)
	}
	// Not here: a device may wait for the peer, and locks are held.
	e.retiring.Go(func() {
		if err := former.Close(); err != nil {
			e.log(slog.LevelWarn, "rdmanet: deregistering a receive ring that has grown", "err", err)
		}
	})
}

// takeKey takes in the key of the peer's ring of a new size. False: the key has not
// come yet, so the doorbell of the credit that grants the size has not either.
func (e *endpoint) takeKey(size uint32, key ring.Key) bool {
	if !e.rekeys {
		e.nextRKey = e.peerRKey
		return true
	}
	if key.Size != size {
		return false
	}
	e.nextRKey = key.RKey
	return true
}

// takeUp changes over to the larger ring of the peer.
func (e *endpoint) takeUp() { e.peerRKey = e.nextRKey }
