//go:build linux && (amd64 || arm64)

package shm

import (
	"math/bits"
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
	shift := bits.TrailingZeros(uint(PageSize))
	for size>>shift > maxBackedBits {
		shift++
	}
	return backedPages{shift: uint8(shift), bits: make([]uint64, size>>shift/64+1)}
}
