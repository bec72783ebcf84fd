package rdmanet

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A listedDriver is a driver whose devices can be asked, and no more.
type listedDriver struct {
	driver.Driver
	name    string
	devices []verbs.Device
	err     error
	route   func(device string, dst netip.Addr) (driver.Route, error)
}

func (d *listedDriver) Name() string                     { return d.name }
func (d *listedDriver) Devices() ([]verbs.Device, error) { return d.devices, d.err }

func (d *listedDriver) Route(device string, dst netip.Addr) (driver.Route, error) {
	if d.route == nil {
		return driver.Route{}, verbs.ErrNoRoute
	}
	return d.route(device, dst)
}

// A loadingDriver is one that needs a library.
type loadingDriver struct {
	listedDriver
	libraries []verbs.Library
}

func (d *loadingDriver) Libraries() []verbs.Library { return d.libraries }

// A listedDevice is its own context.
type listedDevice struct {
	verbs.Context
	name    string
	attr    verbs.DeviceAttr
	ports   []verbs.PortAttr
	gids    []verbs.GIDEntry
	openErr error
	gidErr  error
	closed  bool
}

func (d *listedDevice) Name() string               { return d.name }
func (d *listedDevice) GUID() uint64               { return 0x0200_5eff_fe50_0001 }
func (d *listedDevice) Transport() verbs.Transport { return verbs.TransportRoCE }
func (d *listedDevice) Close() error               { d.closed = true; return nil }

func (d *listedDevice) Open() (verbs.Context, error) {
	if d.openErr != nil {
		return nil, d.openErr
	}
	return d, nil
}

func (d *listedDevice) QueryDevice() (verbs.DeviceAttr, error) { return d.attr, nil }

func (d *listedDevice) QueryPort(port uint8) (verbs.PortAttr, error) {
	if int(port) > len(d.ports) {
		return verbs.PortAttr{}, verbs.ErrBusy
	}
	return d.ports[port-1], nil
}

func (d *listedDevice) QueryGID(_ uint8, index int) (verbs.GIDEntry, error) {
	if index >= len(d.gids) {
		return verbs.GIDEntry{}, verbs.ErrInvalid
	}
	return d.gids[index], d.gidErr
}

func twoPorts() *listedDevice {
	ipv4 := netip.MustParseAddr("192.0.2.1")
	return &listedDevice{
		name: "mlx5_0",
		attr: verbs.DeviceAttr{FWVer: "16.35", NodeGUID: 0x1122_3344_5566_7788, Caps: verbs.CapWriteImm, MaxQP: 1000, PhysPortCnt: 2},
		ports: []verbs.PortAttr{
			{State: verbs.PortActive, LinkLayer: verbs.LinkLayerEthernet, ActiveMTU: verbs.MTU1024, MaxMTU: verbs.MTU4096, GIDTblLen: 8},
			{State: verbs.PortInit, LinkLayer: verbs.LinkLayerInfiniBand, ActiveMTU: verbs.MTU2048, MaxMTU: verbs.MTU4096, LID: 7},
		},
		gids: []verbs.GIDEntry{
			{GID: verbs.GIDFromAddr(netip.MustParseAddr("fe80::1")), Index: 0, Type: verbs.GIDTypeRoCEv1, NetDev: "eth1"},
			{Index: 1},
			{GID: verbs.GIDFromAddr(ipv4), Index: 2, Type: verbs.GIDTypeRoCEv2, NetDev: "eth1"},
			{GID: verbs.GID{0: 0xfe, 1: 0x80, 15: 9}, Index: 3, Type: verbs.GIDTypeIB},
		},
	}
}

func TestDeviceIsDescribed(t *testing.T) {
	device := twoPorts()
	mine := netip.MustParseAddr("192.0.2.1")
	driver := &listedDriver{name: "ibv", route: func(name string, dst netip.Addr) (driver.Route, error) {
		if name == "mlx5_0" && dst == mine {
			return driver.Route{Device: name, Src: dst, SameHost: true}, nil
		}
		return driver.Route{}, verbs.ErrNoRoute
	}}
	got := examine(driver, device, []netip.Addr{netip.MustParseAddr("127.0.0.1"), mine})
	assert.Equal(t, Device{
		Name: "mlx5_0", Driver: "ibv", Transport: verbs.TransportRoCE, NodeGUID: 0x1122_3344_5566_7788, Firmware: "16.35",
		Caps: verbs.CapWriteImm, MaxQP: 1000, Addrs: []netip.Addr{mine},
		Ports: []Port{
			{Number: 1, State: verbs.PortActive, LinkLayer: verbs.LinkLayerEthernet, ActiveMTU: 1024, MaxMTU: 4096, GIDs: []GID{
				{Index: 0, GID: device.gids[0].GID, Type: verbs.GIDTypeRoCEv1, NetDev: "eth1", Addr: netip.MustParseAddr("fe80::1%eth1")},
				{Index: 2, GID: device.gids[2].GID, Type: verbs.GIDTypeRoCEv2, NetDev: "eth1", Addr: mine},
				{Index: 3, GID: device.gids[3].GID, Type: verbs.GIDTypeIB},
			}},
			{Number: 2, State: verbs.PortInit, LinkLayer: verbs.LinkLayerInfiniBand, ActiveMTU: 2048, MaxMTU: 4096, LID: 7},
		},
	}, got)
	assert.Equal(t, "1122:3344:5566:7788", got.NodeGUID.String())
	assert.True(t, device.closed)
}

// What cannot be asked is the device's own error; what can be asked is there.
func TestDeviceThatCannotBeAsked(t *testing.T) {
	t.Run("open", func(t *testing.T) {
		device := twoPorts()
		device.openErr = os.NewSyscallError("open", syscall.EACCES)
		got := examine(&listedDriver{name: "ibv"}, device, nil)
		assert.ErrorIs(t, got.Err, os.ErrPermission)
		assert.Equal(t, "mlx5_0", got.Name)
		assert.Equal(t, GUID(0x0200_5eff_fe50_0001), got.NodeGUID)
		assert.Empty(t, got.Ports)
	})
	t.Run("port", func(t *testing.T) {
		device := twoPorts()
		device.ports = device.ports[:1]
		got := examine(&listedDriver{name: "ibv"}, device, nil)
		assert.ErrorIs(t, got.Err, verbs.ErrBusy)
		assert.ErrorContains(t, got.Err, "port 2")
		assert.Len(t, got.Ports, 1)
		assert.True(t, device.closed)
	})
	t.Run("GID", func(t *testing.T) {
		device := twoPorts()
		device.gidErr = verbs.ErrNoDevice
		got := examine(&listedDriver{name: "ibv"}, device, nil)
		assert.ErrorIs(t, got.Err, ErrNoDevice)
		assert.ErrorContains(t, got.Err, "port 1: GID 0")
		require.Len(t, got.Ports, 2)
		assert.Equal(t, verbs.PortActive, got.Ports[0].State)
	})
	t.Run("addresses", func(t *testing.T) {
		missing := &verbs.LibraryError{Library: "librdmacm.so.1", Package: "librdmacm1", Err: os.ErrNotExist}
		asked := 0
		driver := &listedDriver{name: "ibv", route: func(string, netip.Addr) (driver.Route, error) {
			asked++
			return driver.Route{}, missing
		}}
		got := examine(driver, twoPorts(), []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()})
		var library *verbs.LibraryError
		require.ErrorAs(t, got.Err, &library)
		assert.Equal(t, "librdmacm.so.1", library.Library)
		assert.Equal(t, 1, asked, "once is enough")
		assert.Len(t, got.Ports, 2)
	})
}

func TestDriverWithoutDevices(t *testing.T) {
	soft := &listedDriver{name: "soft", devices: []verbs.Device{twoPorts()}}
	missing := &verbs.LibraryError{Library: "libibverbs.so.1", Package: "libibverbs1", Err: os.ErrNotExist}
	ibv := &loadingDriver{listedDriver{name: "ibv", err: missing}, []verbs.Library{{Name: "libibverbs.so.1", Err: missing}}}

	devices, err := devicesOf([]driver.Driver{soft, ibv})
	assert.NoError(t, err, "there are others")
	assert.Len(t, devices, 1)

	drivers := driversOf([]driver.Driver{soft, ibv})
	assert.Equal(t, []Driver{{Name: "soft"}, {Name: "ibv", Libraries: ibv.libraries, Err: missing}}, drivers)

	devices, err = devicesOf([]driver.Driver{ibv})
	assert.Empty(t, devices)
	var library *verbs.LibraryError
	require.ErrorAs(t, err, &library, "there is nothing but the reason")
	assert.Equal(t, "libibverbs.so.1", library.Library)
	assert.ErrorIs(t, err, ErrNoDevice)
}

func TestDriverThatFails(t *testing.T) {
	soft := &listedDriver{name: "soft", devices: []verbs.Device{twoPorts()}}
	ibv := &listedDriver{name: "ibv", err: os.NewSyscallError("open", syscall.EMFILE)}
	devices, err := devicesOf([]driver.Driver{ibv, soft})
	assert.Len(t, devices, 1, "one driver's failure does not hide the others' devices")
	var driver *cm.DriverError
	require.ErrorAs(t, err, &driver)
	assert.Equal(t, "ibv", driver.Driver)
	assert.True(t, errors.Is(err, syscall.EMFILE))
}

// TestDevices asks what is really here.
func TestDevices(t *testing.T) {
	devices, err := Devices()
	var wanted *Device
	want := cm.DefaultDevice()
	if want == "" || want == faulty0.Name() { // which is not listed
		want = "soft0"
	}
	for i, d := range devices {
		if d.Name == want {
			wanted = &devices[i]
		}
	}
	if wanted == nil {
		require.ErrorIs(t, err, verbs.ErrNotSupported, "without this device there can only be a system without any")
		return
	}
	require.NoError(t, err)
	require.NoError(t, wanted.Err)
	assert.NotZero(t, wanted.NodeGUID)
	assert.NotEmpty(t, wanted.Firmware)
	assert.NotZero(t, wanted.MaxQP)
	iwarp := wanted.Transport == verbs.TransportIWARP // which has no such WRITE, and no GIDs but its hardware address
	assert.Equal(t, !iwarp, wanted.Caps&verbs.CapWriteImm != 0)
	require.NotEmpty(t, wanted.Ports)
	port := wanted.Ports[0]
	assert.Equal(t, verbs.PortActive, port.State)
	assert.Equal(t, verbs.LinkLayerEthernet, port.LinkLayer)
	assert.NotZero(t, port.ActiveMTU)
	addrs := map[netip.Addr]bool{}
	for _, g := range port.GIDs {
		if iwarp {
			continue
		}
		assert.Equal(t, verbs.GIDTypeRoCEv2, g.Type)
		assert.NotEmpty(t, g.NetDev)
		addrs[g.Addr] = true
	}
	at, err := netip.ParseAddrPort(testAddr())
	require.NoError(t, err)
	assert.True(t, iwarp || addrs[at.Addr()], "%v has a GID: %v", at.Addr(), addrs)
	assert.Contains(t, wanted.Addrs, at.Addr())
	if wanted.Transport == verbs.TransportSoftware {
		for _, g := range port.GIDs {
			assert.Contains(t, wanted.Addrs, g.Addr, "it has them all")
		}
	}

	for _, d := range Drivers() {
		if d.Name == wanted.Driver {
			assert.NoError(t, d.Err)
		}
		for _, l := range d.Libraries {
			assert.NotEqual(t, l.Path == "", l.Err == nil, "%s is loaded or missing", l.Name)
		}
	}
}

// Every address that is listed can be listened on.
func TestDeviceAddrsAreItsOwn(t *testing.T) {
	devices, _ := Devices() // TestDevices is about the error
	for _, d := range devices {
		if d.Name == "soft0" || d.Name == cm.DefaultDevice() {
			require.NotEmpty(t, d.Addrs, d.Name)
		}
		for _, a := range d.Addrs {
			lc := ListenConfig{Device: d.Name}
			l, err := lc.Listen(t.Context(), "rdma", netip.AddrPortFrom(a, 0).String())
			if assert.NoError(t, err, "%v on %s", a, d.Name) {
				assert.NoError(t, l.Close())
			}
		}
	}
}
