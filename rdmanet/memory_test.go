package rdmanet

import (
	"errors"
	"fmt"
	"io/fs"
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
		{0, errors.New("no usable cgroup v2 memory mount found"), 4 << 30, true},
		{0, fmt.Errorf("open: %w", fs.ErrPermission), 4 << 30, true},
		{0, fmt.Errorf("open: %w", syscall.EMFILE), 4 << 30, false},
		{0, fmt.Errorf("open: %w", syscall.ENFILE), 4 << 30, false},
		{0, fmt.Errorf("read: %w", syscall.ENOMEM), 4 << 30, false},
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
	require.Equal(t, limit, limitAtStart.get(), "the cgroup of this process")
	b := memory.NewBudget(limitAtStart.get)
	require.Equal(t, limitAtStart.get(), b.SetLimit(7))
	require.EqualValues(t, 7, b.SetLimit(-1))
}

// TestMemoryLimitIsFoundOnce: each ring asks for the limit, and does not read the files of the kernel for
// that again, whatever these said; only what was not to be read then is asked for once more.
func TestMemoryLimitIsFoundOnce(t *testing.T) {
	for _, c := range []struct {
		cgroup uint64
		errs   []error // of the first times
		want   int64
		asked  int
	}{
		{64 << 20, nil, 32 << 20, 1},
		{1, nil, 0, 1},
		{0, []error{memlimit.ErrNoLimit}, 4 << 30, 1},
		{0, []error{errors.New("cgroup v2 hierarchy found in /proc/self/cgroup but no cgroup2 mount found")}, 4 << 30, 1},
		{64 << 20, []error{syscall.EMFILE, syscall.EMFILE}, 32 << 20, 3},
	} {
		asked := 0
		s := startLimit{ask: func() (uint64, error) {
			if asked++; asked <= len(c.errs) {
				return 0, c.errs[asked-1]
			}
			return c.cgroup, nil
		}}
		for range 10 {
			s.get()
		}
		require.Equal(t, c.want, s.get())
		require.Equal(t, c.asked, asked, "%d, %v", c.cgroup, c.errs)
	}
}
