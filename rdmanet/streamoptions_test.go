package rdmanet

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOptionsReachTheStream: what is set on a Dialer, a ListenConfig and a Conn reaches its
// stream, and no other.
func TestOptionsReachTheStream(t *testing.T) {
	config := func(c *Conn) net.KeepAliveConfig { return c.stream.s.Status().KeepAlive }
	fl := flavour{
		dialer: Dialer{KeepAlive: 7 * time.Second},
		listen: ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: 2 * time.Second, Count: 9}},
	}
	client, server := fl.pair(t)
	dialled, accepted := defaultKeepAlive, fl.listen.KeepAliveConfig
	dialled.Idle = 7 * time.Second
	require.Equal(t, dialled, config(client))
	require.Equal(t, accepted, config(server))
	for _, c := range []struct {
		of   *Conn
		want net.KeepAliveConfig
	}{{client, dialled}, {server, accepted}} {
		require.NoError(t, c.of.SetKeepAlive(false))
		c.want.Enable = false
		require.Equal(t, c.want, config(c.of))
		require.NoError(t, c.of.SetKeepAlivePeriod(time.Minute))
		require.Equal(t, time.Minute, config(c.of).Idle)
	}
	again, other := fl.pair(t)
	require.Equal(t, dialled, config(again))
	require.Equal(t, accepted, config(other))

	require.NoError(t, client.SetReadBuffer(100_000))
	require.Eventually(t, func() bool {
		return client.Stats().ReadBuffer == 1<<17 && server.Stats().WriteBuffer == 1<<17
	}, patience, time.Millisecond)
	require.Less(t, again.Stats().ReadBuffer, 1<<17)
}
