package driver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestCheckMemory(t *testing.T) {
	for _, c := range []struct{ size, committed int64 }{{1, 0}, {1, 1}, {maxMemory, maxMemory}} {
		require.NoError(t, CheckMemory(int(c.size), int(c.committed)))
	}
	for _, c := range []struct{ size, committed int64 }{{0, 0}, {-1, 0}, {1, -1}, {1, 2}, {maxMemory + 1, 0}} {
		require.ErrorIs(t, CheckMemory(int(c.size), int(c.committed)), verbs.ErrInvalid)
	}
	require.NoError(t, CheckCommit(0, 1))
	require.NoError(t, CheckCommit(1, 1))
	for _, n := range []int{-1, 2} {
		require.ErrorIs(t, CheckCommit(n, 1), verbs.ErrInvalid)
	}
}
