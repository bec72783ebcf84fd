//go:build linux && (amd64 || arm64)

package shm

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFenceForbidden: where a seccomp filter forbids what was permitted, the error says what to do.
func TestFenceForbidden(t *testing.T) {
	if err := FenceAll(); err != nil {
		t.Skipf("the kernel has no fences for other processors: %v", err)
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and the filter with it
		if err := forbid(unix.SYS_MEMBARRIER); err != nil {
			failed <- err
			return
		}
		failed <- FenceAll()
	}()
	require.EqualError(t, <-failed, "membarrier: operation not permitted (a seccomp filter that came later must go on allowing it)")
	require.NoError(t, FenceAll(), "on another thread")
}

// forbid has the calling thread get EPERM of a system call.
func forbid(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
