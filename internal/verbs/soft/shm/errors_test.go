//go:build linux && (amd64 || arm64)

package shm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestNoDescriptors: the error does not speak of memory, and says what to raise.
func TestNoDescriptors(t *testing.T) {
	err := NoMemory("memfd_create", 4096, unix.EMFILE)
	require.EqualError(t, err, "no descriptor for 4096 bytes of shared memory: memfd_create: too many open files (raise RLIMIT_NOFILE)")
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.ErrorIs(t, err, unix.EMFILE)
	require.EqualError(t, NoDescriptor("socket", unix.ENFILE), "socket: too many open files in system (raise fs.file-max)")
	require.EqualError(t, NoMemory("ftruncate", 4096, unix.ENOMEM), "cannot allocate RDMA memory: ftruncate of 4096 bytes of shared memory: cannot allocate memory (free memory or raise the memory limit of the process or its cgroup)")
}

// TestRefusedMemory: where memory is not short the error does not say so, but what refuses it.
func TestRefusedMemory(t *testing.T) {
	for errno, text := range map[unix.Errno]string{
		unix.EPERM:  "operation not permitted (a seccomp filter has to allow it)",
		unix.EACCES: "permission denied (a seccomp filter has to allow it)",
		unix.ENOSYS: "function not implemented (a seccomp filter has to allow it)",
		unix.EFBIG:  "file too large (raise RLIMIT_FSIZE)",
	} {
		err := NoMemory("memfd_create", 4096, errno)
		require.EqualError(t, err, "cannot allocate RDMA memory: memfd_create of 4096 bytes of shared memory: "+text)
		require.ErrorIs(t, err, verbs.ErrNoMemory)
		require.ErrorIs(t, err, errno)
	}
}
