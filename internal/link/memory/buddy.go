package memory

import (
	"math/bits"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// minBlock is the smallest block: a ring of the smallest size.
const minBlock = lane.MinRing

// buddy divides memory into blocks whose size is a power of two. Block i of order o begins
// at i times minBlock<<o.
type buddy struct {
	blocks [][]uint64 // by order, a bit for each block that is free
	left   uint32     // bytes of them
}

func newBuddy(size uint32) buddy {
	orders := bits.Len32(size / minBlock)
	b := buddy{blocks: make([][]uint64, orders), left: size}
	for o := range b.blocks {
		b.blocks[o] = make([]uint64, (size/minBlock>>o+63)/64)
	}
	b.blocks[orders-1][0] = 1
	return b
}

func order(size uint32) int { return bits.Len32(size/minBlock) - 1 }

// alloc takes a block of size bytes, a power of two from minBlock on.
func (b *buddy) alloc(size uint32) (off uint32, ok bool) {
	want := order(size)
	for o := want; o < len(b.blocks); o++ {
		for w, word := range b.blocks[o] {
			if word == 0 {
				continue
			}
			i := w*64 + bits.TrailingZeros64(word)
			b.flip(o, i)
			for ; o > want; o-- { // the upper halves are free
				i *= 2
				b.flip(o-1, i+1)
			}
			b.left -= size
			return uint32(i) << want * minBlock, true
		}
	}
	return 0, false
}

// free gives back a block, or a part of one that is one itself.
func (b *buddy) free(off, size uint32) {
	b.left += size
	o := order(size)
	i := int(off / minBlock >> o)
	for ; o < len(b.blocks)-1 && b.isFree(o, i^1); o++ {
		b.flip(o, i^1)
		i /= 2
	}
	b.flip(o, i)
}

// has reports whether there is a block of size bytes.
func (b *buddy) has(size uint32) bool {
	for _, blocks := range b.blocks[min(order(size), len(b.blocks)):] {
		for _, word := range blocks {
			if word != 0 {
				return true
			}
		}
	}
	return false
}

// whole reports whether all is free.
func (b *buddy) whole() bool { return b.blocks[len(b.blocks)-1][0] != 0 }

// full reports whether nothing is free.
func (b *buddy) full() bool { return b.left == 0 }

func (b *buddy) isFree(o, i int) bool { return b.blocks[o][i/64]>>(i%64)&1 != 0 }
func (b *buddy) flip(o, i int)        { b.blocks[o][i/64] ^= 1 << (i % 64) }
