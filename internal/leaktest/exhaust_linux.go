package leaktest

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// TakeDescriptors uses up all descriptors that the process may have, which are 1,024 then, until
// restore. It returns how many there were left.
func TakeDescriptors() (restore func(), taken int, err error) {
	unlimit, err := LimitDescriptors(1024)
	if err != nil {
		return nil, 0, err
	}
	var fds []int
	restore = sync.OnceFunc(func() {
		unlimit()
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	})
	for {
		fd, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if errors.Is(err, unix.EMFILE) {
			return restore, len(fds), nil
		}
		if err != nil {
			restore()
			return nil, 0, os.NewSyscallError("fcntl", err)
		}
		fds = append(fds, fd)
	}
}

// LimitDescriptors lets new descriptors have numbers below n only, until restore.
func LimitDescriptors(n uint64) (restore func(), err error) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(n, old.Cur), Max: old.Max}); err != nil {
		return nil, os.NewSyscallError("setrlimit", err)
	}
	return sync.OnceFunc(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }), nil
}
