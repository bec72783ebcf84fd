//go:build linux && (amd64 || arm64)

package shm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Inbox is the receiver's end, for one at a time.
type Inbox struct {
	Mapping
	FD       int
	Head     uint64   // entries taken
	emptied  uint64   // bounce bytes taken
	backed   bool     // the bounce area is committed
	Unfenced bool     // armed is ArmedUnfenced
	Local    bool     // who fills it is of this process
	Streak   uint32   // entries taken since the CQ was armed
	_        [16]byte // it fills cache lines: the next one in memory is polled by another processor
}

// GeometryFor is that of our inboxes for n posted receives.
func GeometryFor(n int) Geometry {
	return Geometry{Shift: uint8(bits.Len(uint(max(n, 1) - 1))), BounceShift: BounceShift}
}

// NewInbox makes an inbox for n posted receives.
func NewInbox(n int) (*Inbox, error) {
	g := GeometryFor(n)
	fd, data, err := New("rdma-soft-inbox", g.Size(), g.bounceOff(), false)
	if err != nil {
		return nil, err
	}
	in := &Inbox{FD: fd}
	in.init(data, g)
	return in, nil
}

// Close gives the memory back, of which the peer may still have a mapping.
func (in *Inbox) Close() {
	in.Unmap()
	unix.Close(in.FD)
}

// CommitBounce backs the bounce area.
func (in *Inbox) CommitBounce() error {
	if in.backed {
		return nil
	}
	if err := Commit(in.FD, in.bounceOff(), PageUp(in.BounceSize())); err != nil {
		return err
	}
	in.backed = true
	return nil
}

// Peek returns the next entry, copied once, if the peer has published it.
func (in *Inbox) Peek() (w0, w1 uint64, ok bool) {
	p := unsafe.Add(in.entries, int(in.Head&in.mask)*entrySize)
	w0 = atomic.LoadUint64((*uint64)(p))
	if w0>>LapShift != in.lap(in.Head) {
		return 0, 0, false
	}
	return w0, atomic.LoadUint64((*uint64)(unsafe.Add(p, 8))), true
}

// Bounced returns up to n bytes at the head of the bounce area: nil if none has
// come, an empty slice if the peer's count makes no sense.
func (in *Inbox) Bounced(n uint32) []byte {
	filled := atomic.LoadUint64(in.Long(OffFilled)) - in.emptied
	if filled == 0 {
		return nil
	}
	size := uint64(in.BounceSize())
	if filled > size || !in.backed {
		return []byte{}
	}
	at := in.emptied & (size - 1)
	return in.Bounce()[at:min(at+filled, at+uint64(n), size)]
}

// Empty gives n bytes of the bounce area back.
func (in *Inbox) Empty(n int) {
	in.emptied += uint64(n)
	atomic.StoreUint64(in.Long(OffEmptied), in.emptied)
}
