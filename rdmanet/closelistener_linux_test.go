package rdmanet

import (
	"net"

	"golang.org/x/sys/unix"
)

// closeListener closes l for every process: a child that another test starts listens on with
// its copy of the socket until its execve, and dialers find it.
func closeListener(l *net.TCPListener) error {
	f, fileErr := l.File()
	err := l.Close()
	if fileErr == nil {
		_ = unix.Shutdown(int(f.Fd()), unix.SHUT_RDWR)
		f.Close()
	}
	return err
}
