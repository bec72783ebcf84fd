package memory

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuddy takes and gives blocks at random, also in parts, and keeps its own book of
// every byte.
func TestBuddy(t *testing.T) {
	const size = 64 << 10
	rnd := rand.New(rand.NewPCG(1, 2))
	b := newBuddy(size)
	used := make([]bool, size/minBlock)
	type block struct{ off, size uint32 }
	var held []block
	mark := func(k block, to bool) {
		for i := k.off / minBlock; i < (k.off+k.size)/minBlock; i++ {
			require.NotEqual(t, to, used[i], "block %d", i)
			used[i] = to
		}
	}
	for range 20000 {
		if rnd.IntN(2) == 0 {
			n := uint32(minBlock) << rnd.IntN(6)
			has := b.has(n)
			off, ok := b.alloc(n)
			require.Equal(t, ok, has)
			if ok {
				require.Zero(t, off%n)
				mark(block{off, n}, true)
				held = append(held, block{off, n})
			}
			continue
		}
		if len(held) == 0 {
			continue
		}
		i := rnd.IntN(len(held))
		k := held[i]
		if k.size > minBlock && rnd.IntN(2) == 0 { // one half of it
			held[i] = block{k.off + k.size/2, k.size / 2}
			k.size /= 2
		} else {
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		}
		mark(k, false)
		b.free(k.off, k.size)
	}
	for _, k := range held {
		b.free(k.off, k.size)
	}
	off, ok := b.alloc(size)
	require.True(t, ok, "what was given back does not come together again")
	require.Zero(t, off)
	_, ok = b.alloc(minBlock)
	require.False(t, ok)
	require.False(t, b.has(2*size))
}
