package rdmanet

import (
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
