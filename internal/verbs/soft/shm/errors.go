//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// NoMemory is the error of a call that makes or maps shared memory of size bytes.
func NoMemory(call string, size int, err error) error {
	if err == unix.EMFILE || err == unix.ENFILE {
		err := NoDescriptor(call, err)
		return driver.Explain(fmt.Sprintf("no descriptor for %d bytes of shared memory: %v", size, err), verbs.ErrNoMemory, err)
	}
	hint := "free memory or raise the memory limit of the process or its cgroup"
	switch err {
	case unix.EPERM, unix.EACCES, unix.ENOSYS:
		hint = "a seccomp filter has to allow it"
	case unix.EFBIG:
		hint = "raise RLIMIT_FSIZE"
	}
	return fmt.Errorf("%w: %s of %d bytes of shared memory: %w (%s)", verbs.ErrNoMemory, call, size, err, hint)
}

// NoDescriptor is the error of a call that makes a descriptor. It says what to do
// where the limit is reached.
func NoDescriptor(call string, err error) error {
	switch err {
	case unix.EMFILE:
		return fmt.Errorf("%w (raise RLIMIT_NOFILE)", os.NewSyscallError(call, err))
	case unix.ENFILE:
		return fmt.Errorf("%w (raise fs.file-max)", os.NewSyscallError(call, err))
	}
	return os.NewSyscallError(call, err)
}
