//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Outbox is the producer's end: the peer's inbox, mapped. It is for one at a time.
type Outbox struct {
	Mapping
	Next   uint64 // entries published
	Credit uint32 // receives posted, as last seen
	Filled uint64 // bounce bytes produced
}

// OpenOutbox maps the inbox that a peer offers. A peer that has not backed its entries would
// have SIGBUS here where there is no memory, so that is seen to.
func OpenOutbox(fd int, g Geometry) (*Outbox, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	size, err := checkSealed(fd)
	if err != nil {
		return nil, err
	}
	if size != int64(g.Size()) {
		return nil, fmt.Errorf("%w: inbox of %d bytes where its geometry needs %d", verbs.ErrProtocol, size, g.Size())
	}
	data, err := mapCounted(fd, 0, g.Size(), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	o := &Outbox{}
	o.init(data, g)
	if CanPopulate() {
		if err := populate(data[:g.bounceOff()]); err != nil {
			o.Unmap()
			return nil, err
		}
	}
	return o, nil
}

// Unmap ends the mapping, if there is one.
func (o *Outbox) Unmap() {
	AllMapped.Add(-int64(len(o.Data)))
	o.Mapping.Unmap()
}

// Publish puts an entry into the queue; the caller has seen that there is room, and
// looks at armed next.
func (o *Outbox) Publish(op uint64, imm uint32, w1 uint64) {
	p := unsafe.Add(o.entries, int(o.Next&o.mask)*entrySize)
	*(*uint64)(unsafe.Add(p, 8)) = w1
	w0 := uint64(imm) | op<<32 | o.lap(o.Next)<<LapShift
	unfenced := atomic.LoadUint32(o.Armed) == ArmedUnfenced && RemoteFences.Load()
	o.publish((*uint64)(p), w0, unfenced)
	if o.Next++; o.Next%(cacheline.Size/entrySize) == 0 {
		cacheline.FetchToWrite(unsafe.Add(o.entries, int((o.Next+2*cacheline.Size/entrySize)&o.mask)*entrySize), 1)
	}
}

// publish stores the first word of an entry. Where the caller has seen that no fence is needed, that
// may be long ago: the receiver may have called for its fence, and have gone to sleep, since.
func (o *Outbox) publish(p *uint64, w0 uint64, unfenced bool) {
	if unfenced {
		publishUnfenced(p, w0)
		if atomic.LoadUint32(o.Armed) == ArmedUnfenced {
			return // there is a fence to come before it sleeps
		}
	}
	// This orders everything before it, and the load of armed after it. So does an atomic store, but
	// not under the race detector, of memory that is not Go's.
	atomic.SwapUint64(p, w0)
}

// TakeWake reports whether the receiver sleeps and wants to be woken for this
// entry, and if so takes the duty to do it.
func (o *Outbox) TakeWake(solicited bool) bool {
	for range 4 {
		a := atomic.LoadUint32(o.Armed)
		if a != ArmedAny && (a != ArmedSolicited || !solicited) {
			return false
		}
		if atomic.CompareAndSwapUint32(o.Armed, a, ArmedNot) {
			return true
		}
	}
	return true // a peer that plays with the word is woken
}

// Ready returns how many receives are left for entries of ours, from a fresh look
// at what the peer has posted.
func (o *Outbox) Ready() (uint32, error) {
	o.Credit = atomic.LoadUint32(o.Posted)
	left := o.Credit - uint32(o.Next)
	if left > uint32(o.mask)+1 {
		return 0, fmt.Errorf("%w: %d receives posted in a queue of %d", verbs.ErrProtocol, left, o.mask+1)
	}
	return left, nil
}
