package rdmanet

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireKeepAlive asks the kernel for the keepalive of a connection.
func requireKeepAlive(t testing.TB, c *net.TCPConn, config net.KeepAliveConfig) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		for _, o := range []struct{ level, name, want int }{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, int(config.Idle / time.Second)},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, int(config.Interval / time.Second)},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, config.Count},
		} {
			got, err := syscall.GetsockoptInt(int(fd), o.level, o.name)
			require.NoError(t, err)
			require.Equal(t, o.want, got, "option %d", o.name)
		}
	}))
}

// TestListenConfigMayChange: a listener that shares an address, too, goes by what its ListenConfig said when it
// began.
func TestListenConfigMayChange(t *testing.T) {
	onSoftware(t)
	config := net.KeepAliveConfig{Enable: true, Idle: 77 * time.Second, Interval: 7 * time.Second, Count: 3}
	lc := ListenConfig{ReusePort: true, KeepAliveConfig: config, Logger: quiet}
	first, err := lc.Listen(context.Background(), "tcp", loopbackAddr)
	require.NoError(t, err)
	l, err := lc.Listen(context.Background(), "tcp", first.Addr().String())
	require.NoError(t, err)
	defer l.Close()
	lc.KeepAliveConfig.Idle = 88 * time.Second
	require.NoError(t, first.Close())
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	requireKeepAlive(t, server.(*net.TCPConn), config)
}
