package cm

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestSoftOptions(t *testing.T) {
	needSoft(t)
	testOptions(t, "soft0", loopback)
}

func TestDeviceOptions(t *testing.T) {
	device, local := testedDevice(t)
	testOptions(t, device, local)
}

// ofPackets leaves a test of options out that have no meaning where TCP carries everything.
func ofPackets(t *testing.T, device string) {
	t.Helper()
	if device != "soft0" && isIWARP(t, device) {
		t.Skip("an attribute of packets, which iWARP leaves to TCP")
	}
}

// testOptions shows what each option of an ID does on a device.
func testOptions(t *testing.T, device string, local netip.Addr) {
	t.Run("ACK timeout", func(t *testing.T) {
		ofPackets(t, device)
		client, server := connectedAttrs(t, local, Options{Device: device, AckTimeout: 14}, Options{Device: device, AckTimeout: 15})
		require.EqualValues(t, []uint8{14, 15}, []uint8{client.Timeout, server.Timeout})
		// Nobody waits for ever because nobody asked.
		client, server = connectedAttrs(t, local, Options{Device: device}, Options{Device: device})
		require.NotZero(t, client.Timeout)
		require.NotZero(t, server.Timeout)
		id := newID(t, NewEventChannel(), Options{Device: device, AckTimeout: 32})
		require.ErrorIs(t, id.BindAddr(netip.AddrPortFrom(local, 0)), verbs.ErrInvalid)
	})
	t.Run("type of service", func(t *testing.T) {
		ofPackets(t, device)
		client, server := connectedAttrs(t, local, Options{Device: device, TOS: 0x20}, Options{Device: device, TOS: 0x48})
		require.EqualValues(t, []uint8{0x20, 0x48}, []uint8{client.AH.TrafficClass, server.AH.TrafficClass})
		client, server = connectedAttrs(t, local, Options{Device: device, TOS: 0x20}, Options{Device: device})
		require.EqualValues(t, []uint8{0x20, 0x20}, []uint8{client.AH.TrafficClass, server.AH.TrafficClass})
		client, server = connectedAttrs(t, local, Options{Device: device}, Options{Device: device})
		require.Zero(t, client.AH.TrafficClass+server.AH.TrafficClass)
	})
	t.Run("AFOnly", func(t *testing.T) { testAFOnly(t, device, local) })
	t.Run("ReuseAddr", func(t *testing.T) { testReuseAddr(t, device, local) })
}

// connectedAttrs connects two IDs and returns what their QPs have.
func connectedAttrs(t *testing.T, local netip.Addr, dial, listen Options) (client, server verbs.QPAttr) {
	t.Helper()
	_, lec, at := listenSoft(t, local.String(), listen)
	c, cec := dialSoft(t, at, dial)
	require.NoError(t, c.id.Connect(nil, 5*time.Second))
	s := newSide(t, get(t, lec, ConnectRequest).ID)
	require.NoError(t, s.id.Accept(nil))
	get(t, cec, Established)
	get(t, lec, Established)
	client, _, err := c.qp.Query()
	require.NoError(t, err)
	server, _, err = s.qp.Query()
	require.NoError(t, err)
	c.close()
	s.close()
	return client, server
}

// testAFOnly has one port listened on for each IP version. Who dials comes to the
// listener of its own.
func testAFOnly(t *testing.T, device string, local netip.Addr) {
	t.Helper()
	opts := Options{Device: device, AFOnly: true}
	_, ec4, at := listenSoft(t, "0.0.0.0", opts)
	port := at.Port()
	ec6 := NewEventChannel()
	l6 := newID(t, ec6, opts)
	require.NoError(t, l6.BindAddr(netip.AddrPortFrom(netip.IPv6Unspecified(), port)))
	require.NoError(t, l6.Listen(8))
	for _, c := range []struct {
		to        netip.Addr
		own, none *EventChannel
	}{{local, ec4, ec6}, {ipv6Of(t, device, local), ec6, ec4}} {
		if !c.to.IsValid() {
			continue
		}
		to := netip.AddrPortFrom(c.to, port)
		client, cec := dialSoft(t, to, Options{Device: device})
		require.NoError(t, client.id.Connect(nil, 5*time.Second))
		req := get(t, c.own, ConnectRequest)
		require.Equal(t, to, req.ID.LocalAddr())
		require.Equal(t, client.id.LocalAddr(), req.ID.RemoteAddr())
		require.NoError(t, req.ID.Reject(nil))
		require.NoError(t, req.ID.Close())
		get(t, cec, Rejected)
		requireEmpty(t, c.none)
		client.close()
	}
	// Without the option the IPv6 wildcard takes both, so there is no room for it.
	dual := newID(t, NewEventChannel(), Options{Device: device})
	require.ErrorIs(t, dual.BindAddr(netip.AddrPortFrom(netip.IPv6Unspecified(), port)), syscall.EADDRINUSE)
}

// testReuseAddr binds two IDs to one address. One that listens is alone.
func testReuseAddr(t *testing.T, device string, local netip.Addr) {
	t.Helper()
	bind := func(opts Options, at netip.AddrPort) (*ID, error) {
		id := newID(t, NewEventChannel(), opts)
		return id, id.BindAddr(at)
	}
	reuse, alone := Options{Device: device, ReuseAddr: true}, Options{Device: device}
	first, err := bind(reuse, netip.AddrPortFrom(local, 0))
	require.NoError(t, err)
	at := first.LocalAddr()
	_, err = bind(alone, at)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "who does not share")
	second, err := bind(reuse, at)
	if device == "soft0" {
		require.ErrorIs(t, err, syscall.EADDRINUSE, "the software device has no sharing")
	} else {
		require.NoError(t, err)
		require.Equal(t, at, second.LocalAddr())
		require.ErrorIs(t, first.Listen(1), syscall.EADDRINUSE)
		require.NoError(t, second.Close())
		first, err = bind(reuse, at) // a failed Listen has unbound it
		require.NoError(t, err)
	}
	require.NoError(t, first.Listen(1))
	_, err = bind(reuse, at)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "one that listens")
}

// ipv6Of is an IPv6 address of the network interface that has an address, the zero
// value if IPv6 is switched off.
func ipv6Of(t *testing.T, device string, local netip.Addr) netip.Addr {
	t.Helper()
	if device != "soft0" && isIWARP(t, device) {
		return netip.Addr{} // siw binds a wildcard to the interface, where nobody comes from this host by IPv6
	}
	at, err := PortFor(device, local)
	require.NoError(t, err)
	ctx, err := at.Device.Open()
	require.NoError(t, err)
	defer ctx.Close()
	_, gids, err := verbs.PortGIDs(ctx, at.Port)
	require.NoError(t, err)
	for _, g := range gids {
		a := g.GID.Addr()
		if !a.Is6() || g.NetDev != at.NetDev {
			continue
		}
		if a.IsLinkLocalUnicast() {
			a = a.WithZone(g.NetDev)
		}
		// A new one cannot be used until the kernel has made sure that it is alone.
		require.Eventually(t, func() bool {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
			return err == nil && c.Close() == nil
		}, talkPatience, 20*time.Millisecond, "%v", a)
		return a
	}
	return netip.Addr{}
}
