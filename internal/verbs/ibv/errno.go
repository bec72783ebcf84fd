//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// causes are what callers branch on; an errno that is not here speaks for itself.
var causes = map[syscall.Errno]error{
	syscall.EINVAL:          verbs.ErrInvalid,
	syscall.ERANGE:          verbs.ErrInvalid,
	syscall.ENOMEM:          verbs.ErrNoMemory,
	syscall.EMFILE:          verbs.ErrNoMemory,
	syscall.ENFILE:          verbs.ErrNoMemory,
	syscall.EAGAIN:          verbs.ErrNoMemory,
	syscall.EBUSY:           verbs.ErrBusy,
	syscall.ENODEV:          verbs.ErrNoDevice,
	syscall.ENXIO:           verbs.ErrNoDevice,
	syscall.EIO:             verbs.ErrNoDevice, // what the kernel answers once a device was removed
	syscall.EOPNOTSUPP:      verbs.ErrNotSupported,
	syscall.ENOSYS:          verbs.ErrNotSupported,
	syscall.EPROTONOSUPPORT: verbs.ErrNotSupported,
	syscall.ENETUNREACH:     verbs.ErrNoRoute,
	syscall.EHOSTUNREACH:    verbs.ErrNoRoute,
}

// failed is the error of a C function. The errno is always in the chain.
func failed(fn string, errno syscall.Errno) error {
	if errno == 0 {
		return fmt.Errorf("%s failed without saying why: %w", fn, syscall.EIO)
	}
	hint := ""
	switch errno {
	case syscall.EMFILE, syscall.ENFILE:
		hint = " (raise RLIMIT_NOFILE)"
	case syscall.EACCES, syscall.EPERM:
		hint = accessHint(fn)
	case syscall.ENOMEM:
		hint = memlockHint()
	case syscall.EAGAIN: // what the kernel answers at a limit of the cgroup, and devices without free resources
		hint = " (the device has no more, or the control group: see its rdma.max)"
	case syscall.EIO:
		hint = " (the device may have been removed)"
	}
	if cause := causes[errno]; cause != nil {
		return fmt.Errorf("%w: %s: %w%s", cause, fn, errno, hint)
	}
	return fmt.Errorf("%s: %w%s", fn, errno, hint)
}

// accessHint says what a permission is needed for.
func accessHint(fn string) string {
	switch fn {
	case "rdma_bind_addr":
		return " (ports below 1024 need CAP_NET_BIND_SERVICE)"
	case "rdma_get_cm_event": // the file is open: the kernel looks who writes to it (ib_safe_file_access)
		return " (the process has changed its user, groups or capabilities since it first used RDMA)"
	}
	return " (the process needs read and write access to /dev/infiniband)"
}

// returned is the error of a C function that returns an errno, or -1 and sets it.
func returned(fn string, r int32) error {
	if r == 0 {
		return nil
	}
	if r < 0 {
		r = -r
	}
	return failed(fn, syscall.Errno(r))
}

// memlockHint says what ENOMEM most often means: memory for a device is locked,
// and the limit on that is low by default.
func memlockHint() string {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil || lim.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf("; RLIMIT_MEMLOCK is %d KiB: raise it with ulimit -l unlimited, LimitMEMLOCK=infinity in the systemd unit, "+
		"--ulimit memlock=-1 for a container, or give the process CAP_IPC_LOCK", lim.Cur>>10)
}
