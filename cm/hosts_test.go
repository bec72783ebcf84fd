package cm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHosts brings up QPs by hand between two hosts. Both run it, with RANK 0 and 1 and
// the addresses of their RDMA devices in RDMANET_TEST_HOSTS.
func TestHosts(t *testing.T) {
	const hostsVar = "RDMANET_TEST_HOSTS"
	first, second, ok := strings.Cut(os.Getenv(hostsVar), ",")
	if !ok {
		t.Skip("two hosts are needed: run this on both with RANK=0 and RANK=1, RDMANET_DEVICE=rxe0, " + hostsVar + "=10.9.0.1,10.9.0.2")
	}
	server := os.Getenv("RANK") == "0"
	local := netip.MustParseAddr(second)
	if server {
		local = netip.MustParseAddr(first)
	}
	rw := meetHost(t, netip.AddrPortFrom(netip.MustParseAddr(first), 7420), server)
	device := DefaultDevice()
	v6 := ipv6Of(t, device, local)
	require.True(t, v6.IsValid(), "no IPv6 address")
	for _, addr := range []netip.Addr{local, v6} {
		for _, writer := range []bool{true, false} {
			t.Logf("at %v, writer %v", addr, writer == server)
			require.NoError(t, converse(rw, device, addr, writer == server))
		}
	}
}

// meetHost connects two hosts by TCP. Which is up first is chance, so the one that
// dials goes on until the other listens.
func meetHost(t *testing.T, at netip.AddrPort, server bool) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var c net.Conn
	var err error
	if server {
		l, lerr := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		require.NoError(t, lerr)
		defer l.Close()
		deadline, _ := ctx.Deadline()
		require.NoError(t, l.SetDeadline(deadline))
		c, err = l.Accept()
	} else {
		var d net.Dialer
		for {
			c, err = d.DialContext(ctx, "tcp", at.String())
			if ctx.Err() != nil || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EHOSTUNREACH) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
