//go:build linux && (amd64 || arm64)

package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestBack: what Back has seen to is memory, and what is said to be known of it, whatever was written before.
// The MR begins within a page.
func TestBack(t *testing.T) {
	if !CanPopulate() {
		t.Skip("the kernel cannot populate a mapping")
	}
	const pages, lead = 32, 100
	fd, mapped, err := New("test", pages*PageSize, 0, false)
	require.NoError(t, err)
	defer unix.Close(fd)
	defer func() { require.NoError(t, Unmap(mapped)) }()
	m := &RemoteMR{Data: mapped[lead : len(mapped)-lead], Mapped: mapped}
	size := uint64(len(m.Data))
	backed := func(off, n uint64) {
		t.Helper()
		require.True(t, m.Back(off, n))
		require.True(t, m.from <= off && off+n <= m.to, "what was written last is known")
		require.LessOrEqual(t, m.to, uint64(len(mapped)))
		in := make([]byte, pages)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(len(mapped)), uintptr(unsafe.Pointer(&in[0])))
		require.Zero(t, errno)
		for off := m.from; off < min(m.to, size); off++ {
			require.Equal(t, byte(1), in[(lead+off)/uint64(PageSize)]&1, "byte %d", off)
		}
	}
	page := uint64(PageSize)
	for _, at := range [][2]uint64{
		{0, 1}, {0, page - lead}, {page - lead, 1}, {page - lead - 1, 2}, {5 * page, 1}, {7 * page, page}, {6 * page, page},
		{20 * page, 1}, {size - 1, 1}, {3 * page, 2 * page}, {0, size},
	} {
		backed(at[0], at[1])
	}
	require.Equal(t, [2]uint64{0, uint64(len(mapped)) - lead}, [2]uint64{m.from, m.to})
}

// TestBackedUnits: the bits of a large MR are few.
func TestBackedUnits(t *testing.T) {
	for size, pages := range map[int]int{1: 1, 64 * PageSize: 1, maxBackedBits * PageSize: 1, (maxBackedBits + 1) * PageSize: 2, 1 << 46: 1 << 46 / maxBackedBits / PageSize} {
		var m RemoteMR
		m.makeBacked(size)
		require.Equal(t, pages*PageSize, 1<<m.shift, "size %d", size)
		require.LessOrEqual(t, len(m.backed), maxBackedBits/64+1)
		require.Less(t, (size-1)>>m.shift/64, len(m.backed), "size %d", size)
	}
}
