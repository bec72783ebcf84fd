//go:build unix

package rdmanet

import (
	"os"
	"syscall"
)

// setSocketTOS sets the type of service of a socket. One of IPv6 may carry IPv4 as well,
// where the system has that.
func setSocketTOS(c syscall.RawConn, v6 bool, tos uint8) error {
	var err error
	set := func(fd uintptr) {
		if v6 {
			err = os.NewSyscallError("setsockopt IPV6_TCLASS", syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_TCLASS, int(tos)))
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_TOS, int(tos))
			return
		}
		err = os.NewSyscallError("setsockopt IP_TOS", syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_TOS, int(tos)))
	}
	if ctlErr := c.Control(set); ctlErr != nil {
		return ctlErr
	}
	return err
}
