package rdmanet

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// tcpTOS asks the kernel for the type of service of a connection, IPv6 or not.
func tcpTOS(t *testing.T, conn net.Conn) int {
	t.Helper()
	c, ok := conn.(*net.TCPConn)
	require.True(t, ok, "%T", conn)
	level, option := syscall.IPPROTO_IP, syscall.IP_TOS
	if c.LocalAddr().(*net.TCPAddr).IP.To4() == nil {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_TCLASS
	}
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	var tos int
	require.NoError(t, raw.Control(func(fd uintptr) { tos, err = syscall.GetsockoptInt(int(fd), level, option) }))
	require.NoError(t, err)
	return tos
}

// TestTCPHasTOS falls back to TCP, at both ends, for each family, and to a listener for
// both.
func TestTCPHasTOS(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		for _, host := range []string{"127.0.0.1", "::1"} {
			t.Run(at+" from "+host, func(t *testing.T) {
				controlled := 0
				control := func(string, string, syscall.RawConn) error { controlled++; return nil }
				lc := ListenConfig{TOS: 72, Device: "none", Control: control, Logger: quiet}
				l, err := lc.Listen(context.Background(), "tcp", at)
				require.NoError(t, err)
				defer l.Close()
				_, port, err := net.SplitHostPort(l.Addr().String())
				require.NoError(t, err)
				if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsUnspecified() && ip.String() != host {
					return
				}
				d := Dialer{TOS: 104, Device: "none", Control: control, Logger: quiet}
				client, err := d.Dial("tcp", net.JoinHostPort(host, port))
				require.NoError(t, err)
				defer client.Close()
				server, err := l.Accept()
				require.NoError(t, err)
				defer server.Close()
				require.Equal(t, 104, tcpTOS(t, client))
				require.Equal(t, 72, tcpTOS(t, server))
				require.Equal(t, 2, controlled, "Control was not called")
			})
		}
	}
}

// TestSharedTCPHasTOS takes a TCP client over a socket that another listener has made.
func TestSharedTCPHasTOS(t *testing.T) {
	onSoftware(t)
	first := ListenConfig{ReusePort: true, TOS: 40, Logger: quiet}
	old, err := first.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	next := ListenConfig{ReusePort: true, TOS: 72, Logger: quiet}
	l, err := next.Listen(context.Background(), "tcp", old.Addr().String())
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, old.Close())
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	require.Equal(t, 72, tcpTOS(t, server))
}
