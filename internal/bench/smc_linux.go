package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// Sockets of SMC-R (AF_SMC): the kernel's own way to have the bytes of a TCP program move
// by RDMA. They are measured where the environment asks for it, as softroce/bench does,
// which also makes sure that they did not fall back to TCP.
const smcFamily = 43

func init() {
	if os.Getenv("RDMANET_BENCH_SMC") != "" {
		transports = append(transports, "smc")
	}
}

func smcSocket(flags int) (int, error) {
	fd, err := syscall.Socket(smcFamily, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|flags, 0)
	return fd, os.NewSyscallError("socket", err)
}

func smcAddr(address string) (*syscall.SockaddrInet4, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	if !a.Addr().Is4() {
		return nil, fmt.Errorf("%v is no address of IPv4", a)
	}
	return &syscall.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}, nil
}

// listenSMC is net.Listen. To package net the socket is one of TCP, as its name says.
func listenSMC(address string) (net.Listener, error) {
	at, err := smcAddr(address)
	if err != nil {
		return nil, err
	}
	fd, err := smcSocket(0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "smc")
	defer f.Close()
	if err := syscall.Bind(fd, at); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := syscall.Listen(fd, 4096); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(f)
}

// dialSMC is net.Dial.
func dialSMC(_ context.Context, address string) (net.Conn, error) {
	to, err := smcAddr(address)
	if err != nil {
		return nil, err
	}
	fd, err := smcSocket(syscall.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	err = syscall.Connect(fd, to)
	f := os.NewFile(uintptr(fd), "smc")
	defer f.Close()
	if err != nil && err != syscall.EINPROGRESS {
		return nil, os.NewSyscallError("connect", err)
	}
	rc, rcErr := f.SyscallConn()
	if rcErr != nil {
		return nil, rcErr
	}
	// It is connected, or has failed, when it can be written to.
	var failed error
	err = rc.Write(func(fd uintptr) bool {
		errno, optErr := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		switch {
		case optErr != nil:
			failed = os.NewSyscallError("getsockopt", optErr)
		case errno != 0:
			failed = os.NewSyscallError("connect", syscall.Errno(errno))
		default:
			_, err := syscall.Getpeername(int(fd))
			return err == nil
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return net.FileConn(f)
}
