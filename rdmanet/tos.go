package rdmanet

import (
	"net"
	"syscall"
)

// A controlFunc is the Control of net.Dialer and of net.ListenConfig.
type controlFunc = func(network, address string, c syscall.RawConn) error

// controlTOS gives a socket of TCP its type of service before it connects or listens,
// so that the packets of the handshake have it, too. What it accepts has the same. Then
// control, if it is not nil, may do what it wants.
func controlTOS(tos uint8, control controlFunc) controlFunc {
	if tos == 0 {
		return control
	}
	return func(network, address string, c syscall.RawConn) error {
		if err := setSocketTOS(c, network == "tcp6", tos); err != nil {
			return err
		}
		if control == nil {
			return nil
		}
		return control(network, address, c)
	}
}

// setTOS gives a connection its type of service.
func setTOS(c *net.TCPConn, tos uint8) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	addr, _ := c.LocalAddr().(*net.TCPAddr)
	return setSocketTOS(raw, addr != nil && addr.IP.To4() == nil, tos)
}
