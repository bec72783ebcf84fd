package rdmanet

import (
	"errors"
	"syscall"
)

// addressErrnos are the errnos of bind(2), listen(2) and connect(2) that programs
// look for, the most telling first.
var addressErrnos = []syscall.Errno{
	syscall.EADDRINUSE, syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM,
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ETIMEDOUT,
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EAFNOSUPPORT,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
}

// addressErrno is the errno to show for a failure to bind or to connect. Where
// several drivers were asked, each may have given one: that of a driver which has
// no device says nothing about the address.
func addressErrno(err error) (errno syscall.Errno, ok bool) {
	for _, errno := range addressErrnos {
		if errors.Is(err, errno) {
			return errno, true
		}
	}
	if errors.Is(err, ErrNoDevice) || errors.Is(err, ErrNoRoute) {
		return 0, false
	}
	return errno, errors.As(err, &errno)
}
