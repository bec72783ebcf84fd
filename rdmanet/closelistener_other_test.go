//go:build !linux

package rdmanet

import "net"

func closeListener(l *net.TCPListener) error { return l.Close() }
