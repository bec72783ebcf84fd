//go:build linux && (amd64 || arm64)

package shm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestCommitPieces: memory is backed piece by piece, and where that fails keeps what a peer has written to it.
func TestCommitPieces(t *testing.T) {
	size := 2*commitPiece + PageSize
	fd, data, err := New("rdma-soft-test", size, 0, true)
	require.NoError(t, err)
	defer unix.Close(fd)
	defer func() { require.NoError(t, Unmap(data)) }()
	backed := func() int64 {
		var s unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &s))
		return s.Blocks * 512
	}
	copy(data[commitPiece:], "written")
	require.ErrorIs(t, Commit(fd, PageSize, size), unix.EPERM, "its size is sealed")
	require.Equal(t, "written", string(data[commitPiece:][:7]))
	require.NoError(t, Commit(fd, PageSize, size-PageSize))
	require.EqualValues(t, size-PageSize, backed())
	require.NoError(t, Commit(fd, 0, PageSize))
	require.EqualValues(t, size, backed())
}
