//go:build linux && (amd64 || arm64)

package shm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBackedUnits: the bits of a large MR are few.
func TestBackedUnits(t *testing.T) {
	for size, pages := range map[int]int{1: 1, 64 * PageSize: 1, maxBackedBits * PageSize: 1, (maxBackedBits + 1) * PageSize: 2, 1 << 46: 1 << 46 / maxBackedBits / PageSize} {
		b := makeBackedPages(size)
		require.Equal(t, pages*PageSize, 1<<b.shift, "size %d", size)
		require.LessOrEqual(t, len(b.bits), maxBackedBits/64+1)
		require.Less(t, (size-1)>>b.shift/64, len(b.bits), "size %d", size)
	}
}
