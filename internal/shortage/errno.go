package shortage

import (
	"errors"
	"syscall"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// errnos are what the system answers where descriptors, memory or address space
// are used up; the first are about descriptors.
var errnos = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ETOOMANYREFS,
	syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC,
	syscall.EAGAIN, // of a device without free resources, as mlx5's, or of a thread
}

// refusals are what the system answers to a process that may not have memory of a kind, or not so much of
// it: a security filter, and RLIMIT_FSIZE. They do not pass.
var refusals = []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EFBIG}

// Errno returns the errno by which programs know a shortage, if err is one: a lack of
// descriptors, memory or address space, which may pass.
func Errno(err error) (errno syscall.Errno, ok bool) {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return errno, true
		}
	}
	for _, errno := range refusals {
		if errors.Is(err, errno) {
			return errno, false
		}
	}
	return syscall.ENOMEM, errors.Is(err, verbs.ErrNoMemory)
}

// Is reports whether err is a shortage that may pass.
func Is(err error) bool {
	_, ok := Errno(err)
	return ok
}

// OfDescriptors reports whether a shortage is one of descriptors.
func OfDescriptors(err error) bool {
	errno, _ := Errno(err)
	return errno == syscall.EMFILE || errno == syscall.ENFILE || errno == syscall.ETOOMANYREFS
}
