package cm

import (
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// testedDevice is the device to test and an address of it, which the test bed with the
// kernel's soft-RoCE names.
func testedDevice(t *testing.T) (device string, local netip.Addr) {
	t.Helper()
	const addrVar = "RDMANET_TEST_ADDR"
	device, listen := DefaultDevice(), os.Getenv(addrVar)
	if device == "" || listen == "" {
		hint := "no device to test: set RDMANET_DEVICE=rxe0 and " + addrVar + " to an address of it, as 192.0.2.1:0"
		if os.Getenv("RDMANET_REQUIRE_RDMA") != "" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	at, err := netip.ParseAddrPort(listen)
	require.NoError(t, err)
	return device, at.Addr()
}

// isIWARP reports whether the device to test is of iWARP.
func isIWARP(t *testing.T, device string) bool {
	t.Helper()
	devices, err := Devices()
	require.NoError(t, err)
	for _, d := range devices {
		if d.Name() == device {
			return d.Transport() == verbs.TransportIWARP
		}
	}
	t.Fatalf("no device %s", device)
	return false
}

// TestDevice does on a real device what TestSoft... do on the software one.
func TestDevice(t *testing.T) {
	device, local := testedDevice(t)
	addr := local.String()
	t.Run("connection", func(t *testing.T) { testConnection(t, addr, addr, device) })
	t.Run("wildcard", func(t *testing.T) { testConnection(t, "0.0.0.0", addr, device) })
	t.Run("IPv6 wildcard", func(t *testing.T) {
		if isIWARP(t, device) {
			t.Skip("siw and the kernel's iWARP CM lose clients of IPv4 that come to the IPv6 wildcard")
		}
		testConnection(t, "::", addr, device)
	})
	t.Run("reject", func(t *testing.T) { testReject(t, addr, device) })
	t.Run("nobody listens", func(t *testing.T) { testNobodyListens(t, addr, device) })
	t.Run("address in use", func(t *testing.T) {
		// A listener on every device that finds its port taken on one has no port; it
		// does not do without the device.
		_, _, at := listenSoft(t, "0.0.0.0", Options{Device: device})
		for _, wanted := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified(), local} {
			err := newID(t, NewEventChannel(), Options{}).BindAddr(netip.AddrPortFrom(wanted, at.Port()))
			require.ErrorIs(t, err, syscall.EADDRINUSE, "%v", wanted)
		}
	})
}

func TestDeviceConversation(t *testing.T) {
	device, local := testedDevice(t)
	if isIWARP(t, device) {
		t.Skip("only the connection manager connects QPs of iWARP")
	}
	testConversations(t, device, local)
}

// The address leads to the device, whether it is named or not.
func TestDevicePort(t *testing.T) {
	device, local := testedDevice(t)
	if isIWARP(t, device) { // a port is for those who connect QPs by hand
		_, err := PortFor(device, local)
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		require.ErrorContains(t, err, "only be connected by the connection manager")
		return
	}
	for _, name := range []string{device, ""} {
		p, err := PortFor(name, local)
		require.NoError(t, err)
		require.Equal(t, device, p.Device.Name())
		requirePort(t, p, local)
	}
	_, err := PortFor(device, loopback)
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	require.ErrorContains(t, err, local.String(), "it says what it has")
	_, err = PortFor("no-such-device", local)
	require.ErrorIs(t, err, verbs.ErrNoDevice)

	// Every entry of its table is found by its own address, of which RoCE has two.
	p, err := PortFor(device, local)
	require.NoError(t, err)
	ctx, err := p.Device.Open()
	require.NoError(t, err)
	defer ctx.Close()
	_, gids, err := verbs.PortGIDs(ctx, 1)
	require.NoError(t, err)
	require.NotEmpty(t, gids)
	for _, g := range gids {
		addr := g.GID.Addr()
		if addr.IsLinkLocalUnicast() {
			addr = addr.WithZone(g.NetDev)
		}
		p, err := PortOf(ctx, addr)
		require.NoError(t, err, addr)
		require.Equal(t, g.GID, p.GID)
		require.Equal(t, verbs.GIDTypeRoCEv2, p.Type)
		require.Equal(t, g.NetDev, p.NetDev)
	}
}
