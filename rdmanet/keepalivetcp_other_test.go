//go:build !linux

package rdmanet

import (
	"net"
	"testing"
)

func requireKeepAlive(testing.TB, *net.TCPConn, net.KeepAliveConfig) {}
