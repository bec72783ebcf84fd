package main

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestDeviceOnWhichEverythingIsRight(t *testing.T) {
	h := roceHost()
	assert.Empty(t, h.checkList(""))
	assert.Equal(t, []check{
		{"device", "rxe0", statusOK, "RoCE, driver ibv, firmware 0.0.0, write with immediate, SRQ", ""},
		{"port", "rxe0 port 1", statusOK, "ACTIVE, Ethernet, MTU 4096 of 4096", ""},
		{"address", "rxe0", statusOK, "fe80::1%eth0, 192.0.2.1", ""},
	}, h.checkDevice(roce()))
}

func TestDeviceThatIsNotListed(t *testing.T) {
	h := fakeHost(withRoCE) // the kernel's rxe0 alone
	c := one(t, h.checkList(""))
	assert.Equal(t, "rxe0", c.Subject)
	assert.Equal(t, statusFail, c.Status)
	assert.Contains(t, c.Detail, "no provider")
	assert.Equal(t, "apt-get install ibverbs-providers librdmacm1", c.Fix)
	assert.Empty(t, h.checkList("soft0"))

	h.open = func(string) error { return syscall.ENOENT }
	assert.Empty(t, h.checkList(""), "the missing file is told already")
	h = fakeHost(withRoCE.without("sys/class/infiniband_verbs"))
	assert.Empty(t, h.checkList(""), "the missing module is told already")
	h = fakeHost(withRoCE)
	h.drivers[1].Err = verbs.ErrNoDevice
	assert.Empty(t, h.checkList(""), "the missing library is told already")
}

func TestDevicesThatCannotBeListed(t *testing.T) {
	h := fakeHost(limited("0", "0", "64").without("sys/class/infiniband"))
	h.devicesErr = &cm.DriverError{Driver: "ibv", Err: fmt.Errorf("ibv_get_device_list: %w", syscall.EMFILE)}
	c := one(t, h.checkList(""))
	assert.Equal(t, statusFail, c.Status)
	assert.Equal(t, "sudo prlimit --pid $$ --nofile=65536", c.Fix)
}

func TestDeviceThatCannotBeAsked(t *testing.T) {
	d := roce()
	d.Ports, d.Addrs = nil, nil
	d.Err = fmt.Errorf("ibv_open_device rxe0: %w", syscall.ENOENT)
	h := fakeHost(withRoCE, d)
	h.open = func(string) error { return syscall.EACCES }
	c := one(t, h.checkDevice(d))
	assert.Equal(t, statusFail, c.Status)
	assert.Equal(t, "chmod a+rw /dev/infiniband/uverbs0", c.Fix, "its file is the reason")

	d.Err = &verbs.LibraryError{Library: "librdmacm.so.1", Package: "librdmacm1", Err: syscall.ENOENT}
	h = fakeHost(withRoCE, d)
	assert.Equal(t, "apt-get install ibverbs-providers librdmacm1", one(t, h.checkDevice(d)).Fix)
}

func TestPortThatIsDown(t *testing.T) {
	const flags = "sys/class/net/eth0/flags"
	for _, tt := range []struct {
		name  string
		files files
		state verbs.PortState
		layer verbs.LinkLayer
		fix   string
	}{
		{"switched off", withRoCE.with(files{flags: "0x1002"}), verbs.PortDown, verbs.LinkLayerEthernet, "ip link set dev eth0 up"},
		{"without a cable", withRoCE, verbs.PortDown, verbs.LinkLayerEthernet, "plug in the cable of eth0, or enable its port at the switch"},
		{"network device of a card", withRoCE.without("sys/class/infiniband/rxe0/parent").with(files{"sys/class/infiniband/rxe0/device/net/eth3/flags": ""}), verbs.PortDown, verbs.LinkLayerEthernet, "ip link set dev eth3 up"},
		{"network device of a GID", withRoCE.with(files{"sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": "eth4"}), verbs.PortDown, verbs.LinkLayerEthernet, "ip link set dev eth4 up"},
		{"InfiniBand", withRoCE.without("sys/class/infiniband/rxe0/parent"), verbs.PortDown, verbs.LinkLayerInfiniBand, "plug in the cable, or enable the port at the switch"},
		{"without subnet manager", withRoCE, verbs.PortInit, verbs.LinkLayerInfiniBand, "systemctl start opensm # on one host of the InfiniBand network, unless a switch manages it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := roce()
			d.Ports = []rdmanet.Port{{Number: 1, State: tt.state, LinkLayer: tt.layer, ActiveMTU: 1024, MaxMTU: 4096}}
			h := fakeHost(tt.files, d)
			checks := h.checkDevice(d)
			require.Len(t, checks, 2, "of addresses nobody speaks")
			assert.Equal(t, check{"port", "rxe0 port 1", statusFail, fmt.Sprintf("%s, %s, MTU 1024 of 4096", tt.state, tt.layer), tt.fix}, checks[1])
		})
	}
}

func TestPortBesideOneThatIsUp(t *testing.T) {
	d := roce()
	d.Ports = append(d.Ports, rdmanet.Port{Number: 2, State: verbs.PortDown, LinkLayer: verbs.LinkLayerEthernet, ActiveMTU: 1024, MaxMTU: 4096})
	h := fakeHost(withRoCE, d)
	c := h.checkDevice(d)[2]
	assert.Equal(t, "rxe0 port 2", c.Subject)
	assert.Equal(t, statusNote, c.Status)
	assert.NotEmpty(t, c.Fix)
}

func TestSmallMTU(t *testing.T) {
	d := roce()
	d.Ports[0].ActiveMTU = 1024
	h := fakeHost(withRoCE, d)
	c := h.checkDevice(d)[1]
	assert.Equal(t, statusNote, c.Status)
	assert.Equal(t, "ip link set dev eth0 mtu 4200", c.Fix)
	d.Ports[0].LinkLayer = verbs.LinkLayerInfiniBand
	assert.Equal(t, statusOK, h.checkDevice(d)[1].Status, "there the subnet manager decides")
}

func TestDeviceWithoutAddress(t *testing.T) {
	noGIDs := func(d rdmanet.Device) rdmanet.Device { d.Ports[0].GIDs = nil; return d }
	infiniBand := func(d rdmanet.Device) rdmanet.Device {
		d.Transport, d.Ports[0].LinkLayer = verbs.TransportIB, verbs.LinkLayerInfiniBand
		return noGIDs(d)
	}
	cards := withRoCE.without("sys/class/infiniband/rxe0/parent")
	for _, tt := range []struct {
		name   string
		files  files
		device rdmanet.Device
		fix    string
	}{
		{"none on the network device", withRoCE, roce(), "ip addr add ADDRESS/PREFIX dev eth0"},
		{"no network device", cards, noGIDs(roce()), "ip addr add ADDRESS/PREFIX dev NETDEV"},
		{"InfiniBand", cards, infiniBand(roce()), "modprobe ib_ipoib"},
		{"IPoIB", cards.with(files{"sys/class/infiniband/rxe0/device/net/ib0/flags": "", "sys/class/net/ib0/flags": "0x1003"}), infiniBand(roce()), "ip addr add ADDRESS/PREFIX dev ib0"},
		{"another namespace", withRoCE.without("sys/class/net"), roce(), "sudo nsenter --net=/proc/1/ns/net /usr/bin/rdmanet-doctor"},
		{"another namespace than the container's", withRoCE.without("sys/class/net").with(files{".dockerenv": ""}), roce(), "docker run --network host IMAGE"},
		{"software device", withRoCE, software, "ip link set dev lo up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.device
			d.Addrs = nil
			h := fakeHost(tt.files, d)
			checks := h.checkDevice(d)
			require.Len(t, checks, 3)
			assert.Equal(t, "address", checks[2].Name)
			assert.Equal(t, statusFail, checks[2].Status)
			assert.Equal(t, tt.fix, checks[2].Fix)
		})
	}
	d := roce()
	d.Addrs, d.Err = nil, syscall.EIO
	h := fakeHost(withRoCE, d)
	assert.Len(t, h.checkDevice(d), 2, "why there are none is told already")
}

func TestRoCEv1Only(t *testing.T) {
	d := roce()
	for i := range d.Ports[0].GIDs {
		d.Ports[0].GIDs[i].Type = verbs.GIDTypeRoCEv1
	}
	h := fakeHost(withRoCE, d)
	c := h.checkDevice(d)[3]
	assert.Equal(t, statusNote, c.Status)
	assert.Equal(t, "cma_roce_mode -d rxe0 -p 1 -m 2", c.Fix)
}

func TestBestAddr(t *testing.T) {
	addrs := func(s ...string) (all []netip.Addr) {
		for _, a := range s {
			all = append(all, netip.MustParseAddr(a))
		}
		return all
	}
	for want, from := range map[string][]netip.Addr{
		"192.0.2.1":    addrs("fe80::1%eth0", "2001:db8::1", "169.254.1.1", "192.0.2.1", "192.0.2.2"),
		"2001:db8::1":  addrs("fe80::1%eth0", "169.254.1.1", "2001:db8::1"),
		"fe80::1%eth0": addrs("fe80::1%eth0", "169.254.1.1"),
		"127.0.0.1":    addrs("127.0.0.1"),
	} {
		assert.Equal(t, want, bestAddr(from).String())
	}
}

// EFA is such a device. Nothing is wrong with the machine.
func TestDeviceWithoutRC(t *testing.T) {
	d := rdmanet.Device{Name: "rxe0", Driver: "ibv", Err: fmt.Errorf("%w: the device has no RC QPs", verbs.ErrNotSupported)}
	h := fakeHost(withRoCE, d)
	c := one(t, h.checkDevice(d))
	assert.Equal(t, statusNote, c.Status)
	assert.Contains(t, c.Detail, "carries no connections")
	assert.Contains(t, c.Detail, "no RC QPs")
	r := all(t, h)
	assert.True(t, r.OK, "%v", r.Checks)
}

func TestSmallPackets(t *testing.T) {
	d := roce()
	d.Ports[0].ActiveMTU = 1024
	h := fakeHost(withRoCE.with(files{"sys/class/net/eth0/mtu": "1500"}), d)
	c := h.checkPort(d, d.Ports[0], true)
	assert.Equal(t, statusNote, c.Status)
	assert.Contains(t, c.Detail, "MTU 1024 of 4096, as eth0 has 1500: larger packets are faster")
	assert.Equal(t, "ip link set dev eth0 mtu 4200", c.Fix)
}

// A note about the kernel's age does not hide its devices.
func TestVerdictOnAnOldKernel(t *testing.T) {
	r := all(t, fakeHost(withRoCE.with(files{"proc/sys/kernel/osrelease": "4.19.0"}), roce()))
	assert.True(t, r.OK)
	assert.Equal(t, "RDMA works here, on rxe0.", r.verdict())
}

// TestRDMAIsSwitchedOff: that is said once, and not as the lack of a device.
func TestRDMAIsSwitchedOff(t *testing.T) {
	h := roceHost()
	h.chosen, h.devices, h.devicesErr = switchedOff, nil, verbs.ErrNoDevice
	c := one(t, h.checkList(""))
	assert.Equal(t, check{"device", "", statusFail, "RDMA is switched off: RDMANET_DEVICE is none", "unset RDMANET_DEVICE"}, c)
}
