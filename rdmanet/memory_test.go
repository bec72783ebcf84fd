package rdmanet

import (
	"fmt"
	"math"
	"sync"
	"syscall"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/stretchr/testify/require"
)

func TestMemoryBudget(t *testing.T) {
	b := newMemoryBudget(func() int64 { return 100 })
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

// TestMemoryLimitAtStart: half of what a container has is the program's own.
func TestMemoryLimitAtStart(t *testing.T) {
	for _, c := range []struct {
		cgroup uint64
		err    error
		want   int64
		known  bool
	}{
		{0, memlimit.ErrNoLimit, 4 << 30, true},
		{0, memlimit.ErrCgroupsNotSupported, 4 << 30, true},
		{0, memlimit.ErrNoCgroup, 4 << 30, true},
		{0, fmt.Errorf("open: %w", syscall.EMFILE), 4 << 30, false},
		{64 << 20, nil, 32 << 20, true},
		{8<<30 - 2, nil, 4<<30 - 1, true},
		{8 << 30, nil, 4 << 30, true},
		{1 << 40, nil, 4 << 30, true},
		{math.MaxUint64, nil, 4 << 30, true},
		{1, nil, 0, true},
	} {
		limit, known := limitWithin(c.cgroup, c.err)
		require.Equal(t, c.want, limit, "%d, %v", c.cgroup, c.err)
		require.Equal(t, c.known, known, "%d, %v", c.cgroup, c.err)
	}
	limit, known := limitWithin(memlimit.FromCgroup())
	require.True(t, known)
	require.Equal(t, limit, limitAtStart(), "the cgroup of this process")
	b := newMemoryBudget(limitAtStart)
	require.Equal(t, limitAtStart(), b.setLimit(7))
	require.EqualValues(t, 7, b.setLimit(-1))
}

func TestMemoryBudgetIsExactUnderContention(t *testing.T) {
	b := newMemoryBudget(func() int64 { return 1000 })
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
