//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestMemoryCommit(t *testing.T) {
	ctx := soft0.open()
	m, err := newMemoryOf(ctx, 10*shm.PageSize+1, 1)
	require.NoError(t, err)
	require.Len(t, m.Bytes(), 11*shm.PageSize)
	require.Equal(t, shm.PageSize, m.Committed())
	require.EqualValues(t, shm.PageSize, backed(t, m.fd))
	require.NoError(t, m.Commit(3*shm.PageSize-1))
	require.Equal(t, 3*shm.PageSize, m.Committed())
	require.EqualValues(t, 3*shm.PageSize, backed(t, m.fd))
	require.NoError(t, m.Commit(1), "less than there is")
	require.Equal(t, 3*shm.PageSize, m.Committed())
	require.ErrorIs(t, m.Commit(11*shm.PageSize+1), verbs.ErrInvalid)
	require.ErrorIs(t, m.Commit(-1), verbs.ErrInvalid)

	// Neither we nor a peer can make it shorter, or keep us from writing.
	require.Error(t, unix.Ftruncate(m.fd, 0))
	_, err = unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
	require.ErrorIs(t, err, unix.EPERM)

	require.NoError(t, m.Close())
	require.ErrorIs(t, m.Close(), verbs.ErrClosed)
	require.ErrorIs(t, m.Commit(1), verbs.ErrClosed)
	require.NoError(t, ctx.Close())
}

func newMemoryOf(ctx *devContext, size, committed int) (*memory, error) {
	m, err := ctx.AllocMemory(size, committed)
	if err != nil {
		return nil, err
	}
	return m.(*memory), nil
}

// backed is how many bytes of a memfd there is memory for.
func backed(t *testing.T, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	return st.Blocks * 512
}

func TestMemoryInvalid(t *testing.T) {
	ctx := soft0.open()
	for _, c := range [][2]int{{0, 0}, {-1, 0}, {1, -1}, {1, 2}, {1 << 47, 0}} {
		_, err := ctx.AllocMemory(c[0], c[1])
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	// More than there can be fails now and not when it is touched.
	before := leaktest.Take()
	_, err := ctx.AllocMemory(1<<45, 1<<45)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.Empty(t, before.LeakedFiles())
	require.NoError(t, ctx.Close())
}

func TestMemoriesFind(t *testing.T) {
	ctx := soft0.open()
	var all []*memory
	for range 5 {
		m, err := newMemoryOf(ctx, 2*shm.PageSize, 0)
		require.NoError(t, err)
		all = append(all, m)
	}
	for _, m := range all {
		got, off := ctx.mems.Find(m.Bytes())
		require.Same(t, m, got)
		require.Zero(t, off)
		got, off = ctx.mems.Find(m.Bytes()[shm.PageSize+7 : shm.PageSize+8])
		require.Same(t, m, got)
		require.Equal(t, shm.PageSize+7, off)
	}
	heap := make([]byte, 100)
	got, _ := ctx.mems.Find(heap)
	require.Nil(t, got)
	gone := all[2].Bytes()
	require.NoError(t, all[2].Close())
	got, _ = ctx.mems.Find(gone)
	require.Nil(t, got)
	for i, m := range all {
		if i != 2 {
			require.NoError(t, m.Close())
		}
	}
}
