//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// MROffer says where an MR is in the memfd that comes with it.
type MROffer struct {
	Key    uint32
	Access verbs.AccessFlags
	Addr   uint64
	Size   uint64
	Off    uint64
}

// MROfferSize is how many bytes an MROffer takes in a message.
const MROfferSize = 32

// Append appends the offer to a message.
func (o MROffer) Append(b []byte) []byte {
	b = HostOrder.AppendUint32(b, o.Key)
	b = HostOrder.AppendUint32(b, uint32(o.Access))
	b = HostOrder.AppendUint64(b, o.Addr)
	b = HostOrder.AppendUint64(b, o.Size)
	return HostOrder.AppendUint64(b, o.Off)
}

// ParseMROffer reads an offer from the MROfferSize bytes at the start of b; Open checks it.
func ParseMROffer(b []byte) MROffer {
	return MROffer{
		Key:    HostOrder.Uint32(b),
		Access: verbs.AccessFlags(HostOrder.Uint32(b[4:])),
		Addr:   HostOrder.Uint64(b[8:]),
		Size:   HostOrder.Uint64(b[16:]),
		Off:    HostOrder.Uint64(b[24:]),
	}
}

// Open maps the MR. A peer's pages are mapped writable only where we may write.
func (o MROffer) Open(fd int) (*RemoteMR, error) {
	page := uint64(PageSize)
	const limit = 1 << 46
	if o.Size == 0 || o.Size > MaxPeerMapped || o.Off > limit || o.Addr+o.Size < o.Addr || o.Addr%page != o.Off%page {
		return nil, fmt.Errorf("%w: MR of %d bytes at %#x, offset %d", verbs.ErrProtocol, o.Size, o.Addr, o.Off)
	}
	prot := unix.PROT_READ
	if o.Access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 {
		prot |= unix.PROT_WRITE
	}
	skip := o.Off % page
	mapped, err := mapCounted(fd, int64(o.Off-skip), int(o.Size+skip), prot)
	if err != nil {
		return nil, err
	}
	MappedMRs.Add(1)
	return &RemoteMR{Key: o.Key, Access: o.Access, Addr: o.Addr, Data: mapped[skip:], Mapped: mapped}, nil
}

// RemoteMR is a mapping of a peer's MR.
type RemoteMR struct {
	Key    uint32
	Access verbs.AccessFlags
	Addr   uint64
	Data   []byte // the MR
	Mapped []byte // the pages it lies in
	// What of it is known to have memory: a bit for each unit of 1<<shift bytes of Mapped. It is
	// made when the MR is first written.
	backed []uint64
	shift  uint8
	// What lies between these offsets is known to be backed: around what was written last.
	from, to uint64
}

// maxBackedBits bounds the bits: above that, a unit is more than a page.
const maxBackedBits = 1 << 15

// Unmap ends the mapping.
func (m *RemoteMR) Unmap() {
	AllMapped.Add(-int64(len(m.Mapped)))
	MappedMRs.Add(-1)
	_ = Unmap(m.Mapped)
}

// Back makes sure that the n bytes at off in the MR, one at least, have memory: its owner need not
// have committed it, and what the system cannot back would be SIGBUS. False: there is
// no memory.
func (m *RemoteMR) Back(off, n uint64) bool {
	return off >= m.from && off+n <= m.to || m.back(off, n)
}

// back is Back of what is not known to be backed by what was written last.
func (m *RemoteMR) back(off, n uint64) bool {
	if !CanPopulate() {
		return true
	}
	if m.backed == nil {
		m.makeBacked(len(m.Mapped))
	}
	// Units are counted from the start of the mapping.
	lead := uint64(uintptr(unsafe.Pointer(&m.Data[0])) - uintptr(unsafe.Pointer(&m.Mapped[0])))
	first, last := (lead+off)>>m.shift, (lead+off+n-1)>>m.shift
	for unit := first; unit <= last; unit++ {
		if m.backed[unit/64]&(1<<(unit%64)) == 0 && !m.populate(unit, last) {
			return false
		}
	}
	m.know(max(first<<m.shift, lead)-lead, (last+1)<<m.shift-lead)
	return true
}

// makeBacked makes the bits for size bytes, all unknown.
func (m *RemoteMR) makeBacked(size int) {
	m.shift = uint8(bits.TrailingZeros(uint(PageSize)))
	for size>>m.shift > maxBackedBits {
		m.shift++
	}
	m.backed = make([]uint64, size>>m.shift/64+1)
}

// know records that what lies between two offsets is backed.
func (m *RemoteMR) know(from, to uint64) {
	if from > m.to || to < m.from {
		m.from, m.to = from, to
		return
	}
	m.from, m.to = min(m.from, from), max(m.to, to)
}

// populate backs the units from first to last.
func (m *RemoteMR) populate(first, last uint64) bool {
	from, to := first<<m.shift, min((last+1)<<m.shift, uint64(len(m.Mapped)))
	if populate(m.Mapped[from:to]) != nil {
		return false
	}
	for unit := first; unit <= last; unit++ {
		m.backed[unit/64] |= 1 << (unit % 64)
	}
	return true
}
