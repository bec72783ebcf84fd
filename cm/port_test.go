package cm

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func entry(addr, nic string, index int, typ verbs.GIDType) verbs.GIDEntry {
	return verbs.GIDEntry{GID: verbs.GIDFromAddr(netip.MustParseAddr(addr)), Type: typ, NetDev: nic, IfIndex: index}
}

// both is how RoCE has an address in its table.
func both(addr, nic string, index int) []verbs.GIDEntry {
	return []verbs.GIDEntry{entry(addr, nic, index, verbs.GIDTypeRoCEv1), entry(addr, nic, index, verbs.GIDTypeRoCEv2)}
}

func ethernet(state verbs.PortState, gids ...[]verbs.GIDEntry) fakePort {
	return fakePort{
		attr: verbs.PortAttr{State: state, ActiveMTU: verbs.MTU1024, LinkLayer: verbs.LinkLayerEthernet},
		gids: slices.Concat(gids...),
	}
}

func device(name string, transport verbs.Transport, ports ...fakePort) *fakeDriver {
	return &fakeDriver{name: name, device: name, transport: transport, ports: ports}
}

const (
	portGID = "fe80::e61d:2d03:8:1a01" // of an InfiniBand port
	subport = "fec0::7:e61d:2d03:8:1a01"
)

// testDevices is what the tests find: a RoCE NIC of two ports with a VLAN, an InfiniBand HCA, an
// iWARP NIC, and the software device, which has everything.
func testDevices() []driver.Driver {
	return []driver.Driver{
		device("soft0", verbs.TransportSoftware, ethernet(verbs.PortActive, both("10.0.0.1", "eth0", 2)[1:], both("127.0.0.1", "lo", 1)[1:], both("10.9.9.9", "eth9", 9)[1:])),
		device("siw0", verbs.TransportIWARP, fakePort{
			attr: verbs.PortAttr{State: verbs.PortActive},
			gids: []verbs.GIDEntry{{GID: verbs.GID{0x52, 0x54, 0, 1}, NetDev: "eth4", IfIndex: 4}},
		}),
		device("mlx5_0", verbs.TransportRoCE,
			ethernet(verbs.PortActive,
				both("fe80::1", "eth0", 2), both("10.0.0.1", "eth0", 2), []verbs.GIDEntry{{}},
				both("fe80::1", "eth0.5", 6), both("10.0.5.1", "eth0.5", 6), both("2001:db8::1", "eth0", 2)),
			ethernet(verbs.PortActive, both("10.1.0.1", "eth1", 3), both("10.0.0.7", "other", 12), both("10.0.0.7", "eth1", 3))),
		device("mlx5_1", verbs.TransportRoCE, ethernet(verbs.PortDown, both("10.2.0.1", "eth2", 7)), ethernet(verbs.PortActive, both("10.3.0.1", "", 0)[:1])),
		device("mlx4_0", verbs.TransportIB, fakePort{
			attr: verbs.PortAttr{State: verbs.PortActive, LID: 17, ActiveMTU: verbs.MTU2048, LinkLayer: verbs.LinkLayerInfiniBand},
			gids: []verbs.GIDEntry{entry(portGID, "", 0, verbs.GIDTypeIB), entry(subport, "", 0, verbs.GIDTypeIB)},
		}),
	}
}

// testOwners is what the system says about its interfaces.
func testOwners(local netip.Addr) ([]owner, error) {
	var found []owner
	for addr, o := range map[string]owner{
		"10.0.0.1": {name: "eth0", index: 2}, "10.0.0.7": {name: "eth1", index: 3}, "10.4.0.1": {name: "eth4", index: 4},
		"192.168.7.1": {name: "ib0", index: 11, portGID: verbs.GIDFromAddr(netip.MustParseAddr(portGID))},
	} {
		if addr == local.String() {
			found = append(found, o)
		}
	}
	return found, nil
}

func TestPortFor(t *testing.T) {
	for _, c := range []struct {
		addr, on string // on: Options.Device
		device   string
		port     uint8
		index    int
	}{
		{"10.0.0.1", "", "mlx5_0", 1, 3}, // RoCE v2, though v1 comes first, and not the software device
		{"::ffff:10.0.0.1", "", "mlx5_0", 1, 3},
		{"10.0.0.1", "soft0", "soft0", 1, 0},
		{"127.0.0.1", "", "soft0", 1, 1},
		{"10.0.5.1", "", "mlx5_0", 1, 8}, // of a VLAN
		{"2001:db8::1", "mlx5_0", "mlx5_0", 1, 10},
		{"2001:db8::1%eth7", "", "mlx5_0", 1, 10}, // a zone means something to link-local addresses only
		{"fe80::1%eth0", "", "mlx5_0", 1, 1},
		{"fe80::1%2", "", "mlx5_0", 1, 1},
		{"fe80::1%eth0.5", "", "mlx5_0", 1, 6},
		{"fe80::1%6", "", "mlx5_0", 1, 6},
		{"10.1.0.1", "", "mlx5_0", 2, 1},
		{"10.0.0.7", "", "mlx5_0", 2, 5}, // another network namespace has it too
		{"10.3.0.1", "", "mlx5_1", 2, 0}, // RoCE v1 only
		{"192.168.7.1", "", "mlx4_0", 1, 0},
		{portGID, "", "mlx4_0", 1, 0},
		{subport, "", "mlx4_0", 1, 1},
	} {
		t.Run(c.addr+"on"+c.on, func(t *testing.T) {
			drivers := testDevices()
			p, err := portFor(drivers, c.on, netip.MustParseAddr(c.addr), testOwners)
			require.NoError(t, err)
			require.Equal(t, c.device, p.Device.Name())
			require.Equal(t, c.port, p.Port)
			require.Equal(t, c.index, p.Index)
			requireAllClosed(t, drivers)

			ctx, err := p.Device.Open()
			require.NoError(t, err)
			attr, err := ctx.QueryPort(p.Port)
			require.NoError(t, err)
			require.Equal(t, attr, p.PortAttr)
		})
	}
}

func requireAllClosed(t *testing.T, drivers []driver.Driver) {
	t.Helper()
	for _, d := range drivers {
		require.Zero(t, d.(*fakeDriver).contexts.Load(), d.Name())
	}
}

func TestPortForNot(t *testing.T) {
	for _, c := range []struct {
		addr, on string
		want     error
		text     string
	}{
		{"0.0.0.0", "", verbs.ErrInvalid, "is no address of a port"},
		{"::", "", verbs.ErrInvalid, "is no address of a port"},
		{"224.0.0.1", "", verbs.ErrInvalid, "is no address of a port"},
		{"fe80::1", "", verbs.ErrInvalid, "cm: fe80::1 is an address of eth0 and eth0.5: name one, as in fe80::1%eth0: "},
		{"fe80::1%eth7", "mlx5_0", syscall.EADDRNOTAVAIL, `cm: fe80::1%eth7 belongs to no RDMA port that is active on device "mlx5_0": ` +
			"mlx5_0 port 1 (ACTIVE) has fe80::1, 10.0.0.1, 10.0.5.1, 2001:db8::1; mlx5_0 port 2 (ACTIVE) has 10.1.0.1, 10.0.0.7"},
		{"10.0.0.1", "mlx4_0", syscall.EADDRNOTAVAIL, "mlx4_0 port 1 (ACTIVE) has " + portGID + ", " + subport},
		{"10.0.0.1", "rxe0", verbs.ErrNoDevice, `cm: 10.0.0.1 belongs to no RDMA port that is active on device "rxe0": no such RDMA device`},
		{"10.2.0.1", "mlx5_1", syscall.ENETDOWN, "mlx5_1 port 1 (DOWN) has it; mlx5_1 port 2 (ACTIVE) has 10.3.0.1"},
		{"10.4.0.1", "siw0", verbs.ErrNotSupported, "siw0 port 1 (ACTIVE): QPs of iWARP can only be connected by the connection manager"},
		{"10.4.0.1", "", verbs.ErrNotSupported, "siw0 port 1 (ACTIVE): QPs of iWARP"},
		{"10.9.9.8", "", syscall.EADDRNOTAVAIL, "soft0 port 1 (ACTIVE) has 10.0.0.1, 127.0.0.1, 10.9.9.9"},
	} {
		t.Run(c.addr+"on"+c.on, func(t *testing.T) {
			drivers := testDevices()
			_, err := portFor(drivers, c.on, netip.MustParseAddr(c.addr), testOwners)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			requireAllClosed(t, drivers)
			for _, other := range []error{verbs.ErrNotSupported, verbs.ErrNoDevice, verbs.ErrInvalid, syscall.ENETDOWN} {
				if other != c.want {
					require.NotErrorIs(t, err, other)
				}
			}
		})
	}
	_, err := portFor(testDevices(), "", netip.Addr{}, testOwners)
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

// The error says where was looked, also where that failed.
func TestNoPortError(t *testing.T) {
	closed, broken := device("mlx5_0", verbs.TransportRoCE), device("mlx5_1", verbs.TransportRoCE)
	closed.openErr = syscall.EACCES
	broken.ports = []fakePort{{err: syscall.EIO}, {}}
	missing := &fakeDriver{name: "ibv", createErr: errors.New("no libibverbs.so.1")}
	many := device("mlx5_2", verbs.TransportRoCE)
	gids := make([]verbs.GIDEntry, 0, 20)
	for a := netip.MustParseAddr("10.1.1.1"); len(gids) < cap(gids); a = a.Next() {
		gids = append(gids, both(a.String(), "eth0", 2)...)
	}
	many.ports = []fakePort{ethernet(verbs.PortActive, gids)}
	_, err := portFor([]driver.Driver{closed, broken, missing, many}, "", farAddr, testOwners)
	require.EqualError(t, err, "cm: 10.0.0.2 belongs to no RDMA port that is active: mlx5_0: "+syscall.EACCES.Error()+
		"; mlx5_1 port 1 (NOP): "+syscall.EIO.Error()+"; mlx5_1 port 2 (NOP) has no address; "+
		"mlx5_2 port 1 (ACTIVE) has 10.1.1.1, 10.1.1.2, 10.1.1.3, 10.1.1.4, 10.1.1.5, 10.1.1.6, 10.1.1.7, 10.1.1.8, 2 more; "+
		"ibv: no libibverbs.so.1")
	for _, want := range []error{syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EIO, missing.createErr} {
		require.ErrorIs(t, err, want)
	}
	var np *NoPortError
	require.ErrorAs(t, err, &np)
	require.Equal(t, farAddr, np.Addr)
	require.Len(t, np.Looked, 4)
	require.Len(t, np.Looked[3].GIDs, 20)

	_, err = portFor(nil, "", farAddr, testOwners)
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	_, err = portFor(nil, "", farAddr, func(netip.Addr) ([]owner, error) { return nil, syscall.EMFILE })
	require.ErrorIs(t, err, syscall.EMFILE)
}

func TestOwners(t *testing.T) {
	owners, err := ownersOf(loopback)
	require.NoError(t, err)
	require.NotEmpty(t, owners)
	nic, err := net.InterfaceByIndex(owners[0].index)
	require.NoError(t, err)
	require.Equal(t, nic.Name, owners[0].name)
	require.NotZero(t, nic.Flags&net.FlagLoopback)
	for _, zone := range []string{"no-such-nic", "0"} {
		owners, err = ownersOf(netip.IPv6Loopback().WithZone(zone))
		require.NoError(t, err)
		require.Empty(t, owners)
	}
	owners, err = ownersOf(netip.MustParseAddr("192.0.2.1"))
	require.NoError(t, err)
	require.Empty(t, owners)
}

func TestSoftPort(t *testing.T) {
	needSoft(t)
	p, err := PortFor("", loopback)
	require.NoError(t, err)
	require.Equal(t, "soft0", p.Device.Name())
	requirePort(t, p, loopback)

	// The software device that behaves as iWARP has the address and must not be used.
	id := newID(t, queueOn(t, driver.Drivers()...), Options{Device: "soft0-iwarp"})
	require.NoError(t, id.BindAddr(netip.AddrPortFrom(loopback, 0)))
	_, err = PortOf(id.Verbs(), loopback)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.ErrorContains(t, err, "soft0-iwarp port 1 (ACTIVE): QPs of iWARP can only be connected by the connection manager")
}

// requirePort checks that p is what its device says about the address.
func requirePort(t *testing.T, p Port, addr netip.Addr) {
	t.Helper()
	ctx, err := p.Device.Open()
	require.NoError(t, err)
	defer ctx.Close()
	g, err := ctx.QueryGID(p.Port, p.Index)
	require.NoError(t, err)
	require.Equal(t, p.GIDEntry, g)
	require.Equal(t, addr, g.GID.Addr())
	require.Equal(t, verbs.GIDTypeRoCEv2, g.Type)
	again, err := PortOf(ctx, addr)
	require.NoError(t, err)
	require.Equal(t, p.PortGID, again.PortGID)
	require.Equal(t, p.Device.Name(), again.Device.Name())
}
