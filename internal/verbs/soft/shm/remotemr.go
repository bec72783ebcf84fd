//go:build linux && (amd64 || arm64)

package shm

import (
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// RemoteMR is a mapping of a peer's MR.
type RemoteMR struct {
	Key    uint32
	Access verbs.AccessFlags
	Addr   uint64
	Data   []byte // the MR
	Mapped []byte // the pages it lies in
	backed backedPages
}

// Unmap ends the mapping.
func (m *RemoteMR) Unmap() {
	AllMapped.Add(-int64(len(m.Mapped)))
	MappedMRs.Add(-1)
	_ = Unmap(m.Mapped)
}

// Back makes sure that b, which is at off in the MR, has memory: its owner need not
// have committed it, and what the system cannot back would be SIGBUS. False: there is
// no memory.
func (m *RemoteMR) Back(b []byte, off uint64) bool {
	if m.backed.bits == nil {
		if !CanPopulate() {
			return true
		}
		m.backed = makeBackedPages(len(m.Mapped))
	}
	// Units are counted from the start of the mapping.
	off += uint64(uintptr(unsafe.Pointer(&m.Data[0])) - uintptr(unsafe.Pointer(&m.Mapped[0])))
	last := (off + uint64(len(b)) - 1) >> m.backed.shift
	for unit := off >> m.backed.shift; unit <= last; unit++ {
		if m.backed.bits[unit/64]&(1<<(unit%64)) == 0 && !m.populate(unit, last) {
			return false
		}
	}
	return true
}

// populate backs the units from first to last.
func (m *RemoteMR) populate(first, last uint64) bool {
	from, to := first<<m.backed.shift, min((last+1)<<m.backed.shift, uint64(len(m.Mapped)))
	if populate(m.Mapped[from:to]) != nil {
		return false
	}
	for unit := first; unit <= last; unit++ {
		m.backed.bits[unit/64] |= 1 << (unit % 64)
	}
	return true
}
