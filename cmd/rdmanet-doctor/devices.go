package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// switchedOff in RDMANET_DEVICE has all programs do without RDMA.
const switchedOff = "none"

// checkList compares the devices that the library has found with the kernel's.
func (h *host) checkList(only string) (checks []check) {
	if h.chosen == switchedOff {
		return []check{topic{name: "device"}.fail("unset RDMANET_DEVICE", "RDMA is switched off: RDMANET_DEVICE is %s", switchedOff)}
	}
	if h.devicesErr != nil {
		checks = append(checks, topic{name: "device"}.fail(h.fix(h.devicesErr), "the devices cannot be listed: %s", oneLine(h.devicesErr)))
	}
	if h.librariesErr() != nil || !h.exists(sysUverbs) {
		return checks // and that is why
	}
	for _, name := range h.kernelDevices() {
		if only != "" && name != only || slices.ContainsFunc(h.devices, func(d rdmanet.Device) bool { return d.Name == name }) {
			continue
		}
		if slices.ContainsFunc(h.checkDeviceFiles(name), failed) {
			continue // libibverbs lists no device without its file
		}
		checks = append(checks, topic{"device", name}.fail(h.install(), "libibverbs does not list it: it has no provider for this kind of device"))
	}
	return checks
}

// librariesErr is why devices of the kernel cannot be used at all.
func (h *host) librariesErr() error {
	for _, d := range h.drivers {
		if d.Err != nil {
			return d.Err
		}
	}
	return nil
}

// checkDevice checks that a device can be asked, that a port of it is up, and that it
// has an address.
func (h *host) checkDevice(d rdmanet.Device) (checks []check) {
	t := topic{"device", d.Name}
	if errors.Is(d.Err, verbs.ErrNotSupported) {
		return []check{t.note("", "carries no connections, the networks of TCP do without it: %s", oneLine(d.Err))}
	}
	if d.Err != nil {
		checks = append(checks, t.fail(h.fixDevice(d), "%s", oneLine(d.Err)))
	} else {
		checks = append(checks, t.ok("%s, driver %s, firmware %s, %s", d.Transport, d.Driver, d.Firmware, d.Caps))
	}
	up := slices.ContainsFunc(d.Ports, active)
	for _, p := range d.Ports {
		checks = append(checks, h.checkPort(d, p, up))
	}
	if up {
		checks = append(checks, h.checkAddresses(d)...)
	}
	return checks
}

func active(p rdmanet.Port) bool { return p.State == verbs.PortActive }

// checkPort checks a port; one that is down is a failure unless another is up.
func (h *host) checkPort(d rdmanet.Device, p rdmanet.Port, anotherUp bool) check {
	t := topic{"port", fmt.Sprintf("%s port %d", d.Name, p.Number)}
	nic := h.netdev(d, p)
	text := fmt.Sprintf("%s, %s, MTU %d of %d", p.State, p.LinkLayer, p.ActiveMTU, p.MaxMTU)
	switch {
	case active(p) && p.LinkLayer == verbs.LinkLayerEthernet && p.ActiveMTU < p.MaxMTU && nic != "":
		if mtu := h.read(path.Join(sysNet, nic, "mtu")); mtu != "" {
			text += fmt.Sprintf(", as %s has %s", nic, mtu)
		}
		return t.note(fmt.Sprintf("ip link set dev %s mtu %d", nic, p.MaxMTU+headers), "%s: larger packets are faster, if the switches and the other hosts carry them too", text)
	case active(p):
		return t.ok("%s", text)
	case anotherUp:
		return t.note(h.bringUp(p, nic), "%s; another port is up", text)
	}
	return t.fail(h.bringUp(p, nic), "%s", text)
}

// headers is what RoCE and iWARP add to a packet, rounded up.
const headers = 104

// bringUp is the line that makes a port active.
func (h *host) bringUp(p rdmanet.Port, nic string) string {
	switch {
	case p.State == verbs.PortInit, p.State == verbs.PortArmed:
		return "systemctl start opensm # on one host of the InfiniBand network, unless a switch manages it"
	case nic != "" && !h.administrativelyUp(nic):
		return "ip link set dev " + nic + " up"
	case nic != "":
		return "plug in the cable of " + nic + ", or enable its port at the switch"
	}
	return "plug in the cable, or enable the port at the switch"
}

// administrativelyUp reports whether somebody has switched a network device on.
func (h *host) administrativelyUp(nic string) bool {
	flags, err := strconv.ParseUint(h.read(path.Join(sysNet, nic, "flags")), 0, 32)
	return err == nil && flags&1 != 0 // IFF_UP
}

// netdev is the network device of a port, "" if it has none.
func (h *host) netdev(d rdmanet.Device, p rdmanet.Port) string {
	if d.Transport == verbs.TransportSoftware {
		return "" // it has them all
	}
	for _, g := range p.GIDs {
		if g.NetDev != "" {
			return g.NetDev
		}
	}
	dir := path.Join(sysDevices, d.Name)
	ndevs := path.Join(dir, "ports", strconv.Itoa(int(p.Number)), "gid_attrs/ndevs")
	for _, index := range h.list(ndevs) {
		if nic := h.read(path.Join(ndevs, index)); nic != "" {
			return nic
		}
	}
	if nic := h.read(path.Join(dir, "parent")); nic != "" { // soft-RoCE has it
		return nic
	}
	for _, nic := range h.list(path.Join(dir, "device/net")) {
		return nic
	}
	return ""
}

// checkAddresses checks that programs can name the device by an address.
func (h *host) checkAddresses(d rdmanet.Device) []check {
	t := topic{"address", d.Name}
	p := d.Ports[slices.IndexFunc(d.Ports, active)]
	nic := h.netdev(d, p)
	switch {
	case len(d.Addrs) > 0:
		addrs := make([]string, len(d.Addrs))
		for i, a := range d.Addrs {
			addrs[i] = a.String()
		}
		checks := []check{t.ok("%s", strings.Join(addrs, ", "))}
		if d.Transport == verbs.TransportRoCE && !slices.ContainsFunc(p.GIDs, func(g rdmanet.GID) bool { return g.Type == verbs.GIDTypeRoCEv2 }) {
			checks = append(checks, t.note(fmt.Sprintf("cma_roce_mode -d %s -p %d -m 2", d.Name, p.Number), "its GIDs are RoCE v1 only, which routers do not carry"))
		}
		return checks
	case d.Err != nil:
		return nil // and that is why
	case nic != "" && !h.exists(path.Join(sysNet, nic)):
		return []check{t.fail(h.toTheHost(), "%s is in another network namespace than this process", nic)}
	case d.Transport == verbs.TransportSoftware:
		return []check{t.fail("ip link set dev lo up", "this network namespace has no address, not even that of the loopback")}
	case nic == "" && p.LinkLayer == verbs.LinkLayerInfiniBand:
		return []check{t.fail("modprobe ib_ipoib", "it has no network device, and so no IP address to be named by")}
	case nic == "":
		nic = "NETDEV"
	}
	return []check{t.fail(fmt.Sprintf("ip addr add ADDRESS/PREFIX dev %s", nic), "it has no IP address to be named by")}
}
