package rdmanet

import (
	"fmt"
	"math"
	"syscall"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
)

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
	b := memory.NewBudget(limitAtStart)
	require.Equal(t, limitAtStart(), b.SetLimit(7))
	require.EqualValues(t, 7, b.SetLimit(-1))
}
