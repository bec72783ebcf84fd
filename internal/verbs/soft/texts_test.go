//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// TestNoProc: without /proc the error says what to mount.
func TestNoProc(t *testing.T) {
	_, err := os.Readlink("/nosuchproc/self/fd/14")
	require.EqualError(t, noProc(err), "readlink /nosuchproc/self/fd/14: no such file or directory (mount -t proc proc /proc)")
	require.ErrorIs(t, noProc(err), unix.ENOENT)
	require.NoError(t, noProc(nil))
	require.Equal(t, unix.EACCES, noProc(unix.EACCES))
}

// TestWantOfDescriptors: it is not told as want of memory, and says what to raise.
func TestWantOfDescriptors(t *testing.T) {
	err := noMemory("memfd_create", 4096, unix.EMFILE)
	require.EqualError(t, err, "no descriptor for 4096 bytes of shared memory: memfd_create: too many open files (raise RLIMIT_NOFILE)")
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.ErrorIs(t, err, unix.EMFILE)
	require.EqualError(t, noDescriptor("socket", unix.ENFILE), "socket: too many open files in system (raise fs.file-max)")
	require.EqualError(t, noMemory("ftruncate", 4096, unix.ENOMEM), "cannot allocate RDMA memory: ftruncate of 4096 bytes of shared memory: cannot allocate memory (free memory or raise the memory limit of the process or its cgroup)")
}
