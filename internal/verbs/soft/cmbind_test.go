//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestWhichListenerIsFound(t *testing.T) {
	noLeaks(t)
	dsts := []string{"127.0.0.1", "127.0.0.9", "::1", "0.0.0.0", "::"}
	own := map[string]string{"0.0.0.0": "127.0.0.1", "::": "::1"}
	addrs, err := interfaceAddrs()
	require.NoError(t, err)
	for a := range addrs {
		if !a.IsLoopback() {
			dsts = append(dsts, a.String())
		}
	}
	for _, tt := range []struct {
		listen string
		v6only bool
		found  func(dst netip.Addr) bool
	}{
		{"127.0.0.1", false, func(a netip.Addr) bool { return a.String() == "127.0.0.1" }},
		{"127.0.0.9", false, func(a netip.Addr) bool { return a.String() == "127.0.0.9" }},
		{"::1", false, func(a netip.Addr) bool { return a.String() == "::1" }},
		{"0.0.0.0", false, netip.Addr.Is4},
		{"::", true, netip.Addr.Is6},
		{"::", false, func(netip.Addr) bool { return true }},
	} {
		l := listenAt(t, netip.AddrPortFrom(netip.MustParseAddr(tt.listen), 0).String(), 4, driver.CMOptions{AFOnly: tt.v6only})
		for _, dst := range dsts {
			name := fmt.Sprintf("listen %s, v6only %v, dial %s", tt.listen, tt.v6only, dst)
			asked := netip.MustParseAddr(dst)
			if to, ok := own[dst]; ok {
				dst = to
			}
			to := netip.MustParseAddr(dst)
			d := dialTo(t, netip.AddrPortFrom(asked, l.LocalAddr().Port()))
			if !tt.found(to) {
				require.Equal(t, driver.RejectNoService, d.next(driver.CMRejected).Reason, name)
				d.close()
				continue
			}
			a, _ := l.request()
			require.Equal(t, displayed(to), a.LocalAddr().Addr(), name)
			require.Equal(t, d.RemoteAddr(), a.LocalAddr(), name)
			require.Equal(t, d.LocalAddr(), a.RemoteAddr(), name)
			require.NoError(t, a.Reject(nil))
			d.next(driver.CMRejected)
			d.close()
		}
		l.close()
	}
}

func TestBindRefusals(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{})
	id := newTestID(t, driver.CMOptions{})
	require.ErrorIs(t, id.BindAddr(l.LocalAddr()), unix.EADDRINUSE)
	require.ErrorIs(t, id.BindAddr(netip.AddrPortFrom(netip.IPv6Unspecified(), l.LocalAddr().Port())), unix.EADDRINUSE)
	require.ErrorIs(t, id.BindAddr(netip.MustParseAddrPort("203.0.113.77:0")), unix.EADDRNOTAVAIL)
	require.ErrorIs(t, id.BindAddr(netip.AddrPort{}), verbs.ErrInvalid)
	// The id is still as good as new.
	require.NoError(t, id.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")))
}

func TestBindPrivilegedPort(t *testing.T) {
	host, err := currentHostNet(hostNetTTL)
	require.NoError(t, err)
	if host.privBelow < 2 {
		t.Skip("no port is privileged here (net.ipv4.ip_unprivileged_port_start)")
	}
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), uint16(host.privBelow-1))
	if os.Geteuid() != 0 {
		require.ErrorIs(t, newTestID(t, driver.CMOptions{}).BindAddr(addr), unix.EACCES)
		return
	}
	asUser(t, 65534, func() {
		_, err := claimPort(testDevice(t), addr, false)
		require.ErrorIs(t, err, unix.EACCES)
		require.ErrorContains(t, err, fmt.Sprintf("ports below %d need CAP_NET_BIND_SERVICE", host.privBelow))
	})
	c, err := claimPort(testDevice(t), addr, false)
	require.NoError(t, err)
	c.release()
}

func TestDialFromAGivenAddress(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "0.0.0.0:0", 4, driver.CMOptions{})
	dst := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.LocalAddr().Port())
	reach := func(d *testID, src netip.AddrPort) netip.AddrPort {
		require.NoError(t, d.ResolveAddr(src, dst, 0))
		d.next(driver.CMAddrResolved)
		require.NoError(t, d.ResolveRoute(0))
		d.next(driver.CMRouteResolved)
		d.createQP()
		require.NoError(t, d.Connect(nil, patience))
		a, _ := l.request()
		require.Equal(t, d.LocalAddr(), a.RemoteAddr())
		require.NoError(t, a.Reject(nil))
		d.next(driver.CMRejected)
		return d.LocalAddr()
	}
	newID := func() *testID { return newTestID(t, driver.CMOptions{}) }

	// Of 127/8 the kernel takes 127.0.0.1, whichever is the destination.
	other := listenAt(t, "127.0.0.8:0", 4, driver.CMOptions{})
	d := dialTo(t, other.LocalAddr())
	require.Equal(t, "127.0.0.1", d.LocalAddr().Addr().String())
	a, _ := other.request()
	require.Equal(t, d.LocalAddr(), a.RemoteAddr())
	require.NoError(t, a.Reject(nil))
	d.next(driver.CMRejected)
	d.close()

	// An address alone, a port alone, both, and both by BindAddr.
	from := reach(newID(), netip.MustParseAddrPort("127.0.0.5:0"))
	require.Equal(t, "127.0.0.5", from.Addr().String())
	fixed := newID()
	require.NoError(t, fixed.ResolveAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), freePort(t)), dst, 0))
	from = fixed.LocalAddr()
	require.Equal(t, "127.0.0.1", from.Addr().String())
	err := newID().ResolveAddr(from, dst, 0)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, "another RDMA listener or dialer has the port", "there is no listener")
	fixed.close()
	require.Equal(t, from, reach(newID(), from))
	for _, addr := range []string{"127.0.0.6:0", "0.0.0.0:0", "[::]:0"} {
		id := newID()
		require.NoError(t, id.BindAddr(netip.MustParseAddrPort(addr)))
		port := id.LocalAddr().Port()
		require.Equal(t, port, reach(id, netip.AddrPort{}).Port())
		require.False(t, id.LocalAddr().Addr().IsUnspecified())
	}

	require.ErrorIs(t, newID().ResolveAddr(netip.MustParseAddrPort("203.0.113.77:0"), dst, 0), unix.EADDRNOTAVAIL)
	require.ErrorIs(t, newID().ResolveAddr(netip.MustParseAddrPort("[::1]:0"), dst, 0), verbs.ErrInvalid)
	require.ErrorIs(t, newID().ResolveAddr(dst, netip.AddrPort{}, 0), verbs.ErrInvalid)
}

// freePort is a port that nobody has on the usual device.
func freePort(t *testing.T) uint16 {
	t.Helper()
	c, err := claimPort(soft0.name, netip.AddrPortFrom(netip.IPv4Unspecified(), 0), false)
	require.NoError(t, err)
	defer c.release()
	return c.addr.Port()
}

func TestResolveUnreachable(t *testing.T) {
	noLeaks(t)
	id := newTestID(t, driver.CMOptions{})
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("203.0.113.77:80"), 0))
	require.ErrorIs(t, id.next(driver.CMAddrError).Err, verbs.ErrNoRoute)
	require.ErrorIs(t, id.ResolveRoute(0), verbs.ErrState)
}
