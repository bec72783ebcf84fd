//go:build linux && (amd64 || arm64)

package soft

import (
	"math/bits"
	"unsafe"
)

// backedPages is what of a peer's MR is known to have memory: a bit for each unit of
// 1<<shift bytes. It is made when the MR is first written.
type backedPages struct {
	shift uint8
	bits  []uint64
}

// maxBackedBits bounds the bits: above that, a unit is more than a page.
const maxBackedBits = 1 << 15

// makeBackedPages returns the bits for size bytes, all unknown.
func makeBackedPages(size int) backedPages {
	shift := bits.TrailingZeros(uint(pageSize))
	for size>>shift > maxBackedBits {
		shift++
	}
	return backedPages{shift: uint8(shift), bits: make([]uint64, size>>shift/64+1)}
}

// back makes sure that b, which is at off in the MR, has memory: its owner need not
// have committed it, and what the system cannot back would be SIGBUS. False: there is
// no memory.
func (m *remoteMR) back(b []byte, off uint64) bool {
	if m.backed.bits == nil {
		if !canPopulate() {
			return true
		}
		m.backed = makeBackedPages(len(m.mapped))
	}
	// Units are counted from the start of the mapping.
	off += uint64(uintptr(unsafe.Pointer(&m.data[0])) - uintptr(unsafe.Pointer(&m.mapped[0])))
	last := (off + uint64(len(b)) - 1) >> m.backed.shift
	for unit := off >> m.backed.shift; unit <= last; unit++ {
		if m.backed.bits[unit/64]&(1<<(unit%64)) == 0 && !m.populate(unit, last) {
			return false
		}
	}
	return true
}

// populate backs the units from first to last.
func (m *remoteMR) populate(first, last uint64) bool {
	from, to := first<<m.backed.shift, min((last+1)<<m.backed.shift, uint64(len(m.mapped)))
	if populate(m.mapped[from:to]) != nil {
		return false
	}
	for unit := first; unit <= last; unit++ {
		m.backed.bits[unit/64] |= 1 << (unit % 64)
	}
	return true
}
