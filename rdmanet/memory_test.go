package rdmanet

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryBudget(t *testing.T) {
	b := newMemoryBudget(100)
	require.NoError(t, b.reserve(60))
	require.NoError(t, b.reserve(40))
	require.ErrorIs(t, b.reserve(1), ErrNoMemory)
	b.release(40)
	require.NoError(t, b.reserve(40))
	require.EqualValues(t, 100, b.setLimit(50), "the limit before")
	require.ErrorIs(t, b.reserve(0+1), ErrNoMemory, "over a lowered limit")
	require.EqualValues(t, 50, b.setLimit(-1), "a negative limit only asks")
	require.EqualValues(t, 50, b.setLimit(math.MaxInt64))
	require.NoError(t, b.reserve(math.MaxInt32), "no limit")
	b.used.Store(math.MaxInt64 - 5)
	require.ErrorIs(t, b.reserve(6), ErrNoMemory, "the sum must not overflow")
}

func TestMemoryBudgetIsExactUnderContention(t *testing.T) {
	b := newMemoryBudget(1000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if b.reserve(1) == nil {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1000, granted)
	require.EqualValues(t, 1000, b.used.Load())
}
