package link

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

func TestFreeIDs(t *testing.T) {
	f := freeIDs{next: 1, last: 200}
	takes := func(n int, first lane.ID, count int) {
		t.Helper()
		gotFirst, got := f.take(n)
		require.Equal(t, []int{int(first), count}, []int{int(gotFirst), got})
	}
	takes(100, 1, 64) // a power of two
	takes(100, 65, 64)
	takes(0, 129, 0)
	require.Equal(t, 72, f.len())
	f.give(70, 1)
	f.give(62, 4) // across a border of words
	f.give(10, 2)
	require.Equal(t, 79, f.len())
	takes(8, 62, 4) // the longest, before one that never was granted
	takes(2, 10, 2)
	takes(8, 70, 1)
	takes(8, 129, 8)
	f.give(8, 4)
	f.give(20, 5)
	takes(4, 8, 4) // the first that is long enough
	takes(8, 20, 4)
	takes(8, 24, 1)
	takes(64, 137, 64)
	takes(1, 201, 0)
	require.Zero(t, f.len())
	f.give(200, 1) // the highest
	takes(9, 200, 1)
	takes(9, 201, 0)
}

// TestFreeIDsOnce: an id is taken once before it is given back.
func TestFreeIDsOnce(t *testing.T) {
	const last = lane.MaxStream
	r := rand.New(rand.NewPCG(1, 2))
	f := freeIDs{next: 1, last: last}
	taken := map[lane.ID]bool{}
	for range 2000 {
		first, count := f.take(1 + r.IntN(64))
		require.Equal(t, count == 0, len(taken) == int(last))
		for i := range lane.ID(count) {
			require.False(t, taken[first+i])
			taken[first+i] = true
		}
		back := r.IntN(2 * max(count, 1))
		for id := range taken {
			if back--; back < 0 {
				break
			}
			delete(taken, id)
			f.give(id, 1)
		}
		require.Equal(t, int(last), f.len()+len(taken))
	}
	assert.NotEmpty(t, taken)
}
