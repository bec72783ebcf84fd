package endpoint

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestCheck(t *testing.T) {
	for network := range strings.SplitSeq(strings.Replace(Networks, " or ", ", ", 1), ", ") {
		assert.NoError(t, Config{Network: network}.Check())
	}
	assert.NoError(t, Config{Network: "rdma", Device: "soft0"}.Check())
	assert.NoError(t, Config{Network: "tcp", Device: "soft0"}.Check())
	for _, network := range []string{"rdma+tcp", "kernel-", "kernel-udp", "kernel-unix", "kernel-rdma"} {
		assert.ErrorContains(t, Config{Network: network}.Check(), "unknown network")
	}
	assert.ErrorContains(t, Config{Network: "udp"}.Check(), `unknown network "udp"`)
	assert.ErrorContains(t, Config{}.Check(), "unknown network")
	assert.ErrorContains(t, Config{Network: "unix", Device: "soft0"}.Check(), "needs a network of rdma or tcp")
	assert.ErrorContains(t, Config{Network: "kernel-tcp", Device: "soft0"}.Check(), "needs a network of rdma or tcp")
}

func TestEveryNetworkCarriesBytesAndHalfCloses(t *testing.T) {
	for _, network := range []string{"rdma", "rdma4", "tcp", "tcp4", "kernel-tcp", "kernel-tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			c := Config{Network: network, Timeout: 10 * time.Second}
			address, remove, err := c.Local()
			require.NoError(t, err)
			defer remove()
			l, err := c.Listen(t.Context(), address)
			require.NoError(t, err)
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = io.Copy(conn, conn)
					_ = conn.Close()
				}
			}()
			rdma := c.RDMA() && !leftOut(l)
			conn := dial(t, c, l.Addr().String(), rdma)
			defer conn.Close()
			_, err = io.WriteString(conn, "hello")
			require.NoError(t, err)
			require.NoError(t, CloseWrite(conn))
			got, err := io.ReadAll(conn)
			require.NoError(t, err)
			assert.Equal(t, "hello", string(got))

			stats, ok := Stats(conn)
			assert.Equal(t, rdma, ok)
			if ok {
				assert.NotEmpty(t, Device(conn))
				assert.EqualValues(t, 5, stats.BytesWritten)
				assert.EqualValues(t, 5, stats.BytesRead)
			} else {
				assert.Contains(t, Device(conn), "socket")
			}
		})
	}
}

// leftOut reports whether RDMA was left out of a network of TCP, as iWARP is.
func leftOut(l net.Listener) bool {
	rl, ok := l.(*rdmanet.Listener)
	return ok && rl.Fallback() != nil && errors.Is(rl.Fallback(), verbs.ErrTCPPorts)
}

// dial dials again if TCP was there sooner, as it may be on a busy machine.
func dial(t *testing.T, c Config, address string, rdma bool) net.Conn {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		conn, err := c.Dial(t.Context(), address)
		require.NoError(t, err)
		if _, ok := Stats(conn); ok == rdma {
			return conn
		}
		require.NoError(t, conn.Close())
		require.True(t, time.Now().Before(end), "TCP is there sooner all the time")
	}
}

func TestLocalRemovesTheSocket(t *testing.T) {
	c := Config{Network: "unix"}
	address, remove, err := c.Local()
	require.NoError(t, err)
	l, err := c.Listen(t.Context(), address)
	require.NoError(t, err)
	require.FileExists(t, address)
	remove()
	_, err = os.Stat(address)
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, l.Close())

}

func TestLocalAddress(t *testing.T) {
	at := map[string]string{"4": "127.0.0.1:0", "6": "[::1]:0"}
	devices, err := rdmanet.Devices()
	require.NoError(t, err)
	for _, d := range devices {
		t.Setenv("RDMANET_DEVICE", d.Name)
		for family, loopback := range at {
			address, _, err := Config{Network: "kernel-tcp" + family}.Local()
			require.NoError(t, err)
			assert.Equal(t, loopback, address)
			local := netip.MustParseAddrPort(loopback).Addr()
			has := func(a netip.Addr) bool { return a.Is4() == local.Is4() }
			if slices.Contains(d.Addrs, local) || !slices.ContainsFunc(d.Addrs, has) {
				has = func(a netip.Addr) bool { return a == local }
			}
			address, _, err = Config{Network: "rdma" + family}.Local()
			require.NoError(t, err)
			assert.True(t, has(netip.MustParseAddrPort(address).Addr()), "%s on %s", address, d.Name)
		}
	}
	t.Setenv("RDMANET_DEVICE", "nosuch9")
	address, _, err := Config{Network: "rdma4"}.Local()
	require.NoError(t, err)
	assert.Equal(t, at["4"], address)
}

func TestCloseWriteNeedsAConnectionThatCan(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	assert.Error(t, CloseWrite(a))
}
