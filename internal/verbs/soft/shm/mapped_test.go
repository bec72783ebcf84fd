//go:build linux && (amd64 || arm64)

package shm

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestHostileHugePages: where there are none left, memory of huge pages that the peer
// has made holes in is SIGBUS.
func TestHostileHugePages(t *testing.T) {
	const size = 2 << 20
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOENT) {
		t.Skip("this kernel has no huge pages of 2 MiB")
	}
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, WantSeals)
	require.NoError(t, err)
	_, err = MapPeer(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE)
	require.ErrorIs(t, err, verbs.ErrProtocol)
}
