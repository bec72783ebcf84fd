package rdmanet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A Device is an RDMA device of this host as it was found by Devices.
type Device struct {
	Name      string // what Dialer.Device and ListenConfig.Device take: "mlx5_0", "rxe0", "soft0"
	Driver    string // the driver that found it: "soft" or "ibv"
	Transport verbs.Transport
	NodeGUID  GUID
	Firmware  string
	Caps      verbs.DeviceCaps
	MaxQP     int // how many queue pairs it has; each end of a lane, which carries many connections, takes one
	MaxCQ     int // how many completion queues; each end of a lane takes two
	MaxMR     int // how many memory regions; each end of a lane takes three, and nine while a connection is busy

	// Addrs are the addresses of this host that Listen takes on the device, and
	// that connections over it come from.
	Addrs []netip.Addr
	Ports []Port

	// Err joins what could not be found out and why: the device is busy or was
	// removed, /dev/infiniband may not be opened. What else is here was found out.
	Err error
}

// A Port is a port of a Device.
type Port struct {
	Number    uint8 // they count from 1
	State     verbs.PortState
	LinkLayer verbs.LinkLayer
	ActiveMTU int    // in bytes
	MaxMTU    int    // in bytes
	LID       uint16 // InfiniBand only
	GIDs      []GID  // the entries of the GID table that are in use
}

// A GID is an entry of a port's GID table.
type GID struct {
	Index  int
	GID    verbs.GID
	Type   verbs.GIDType
	NetDev string     // the network device it belongs to, "" if none
	Addr   netip.Addr // the IP address it stands for, invalid if it stands for none
}

// GUID is a global unique identifier.
type GUID uint64

func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// A Driver is a source of devices.
type Driver struct {
	Name string // "soft", "ibv"

	// Libraries are the libraries of the system that it loads, or would load.
	Libraries []verbs.Library

	// Err says why it cannot have devices, as a *verbs.LibraryError for a missing
	// library, verbs.ErrNotSupported for a system that it does not serve, or ErrNoDevice
	// where RDMA is switched off; nil if it could look for some, though there may be none.
	Err error
}

// Drivers lists the drivers of this program, whether they have devices or not.
func Drivers() []Driver { return driversOf(driver.Drivers()) }

// Devices lists the RDMA devices of this host, the software device included, in the
// order in which an address looks for one; none, and an ErrNoDevice that says so, while
// RDMANET_DEVICE=none switches RDMA off. It asks each device: it is meant for
// people and for start-up, not for every dial.
//
// The error joins a *cm.DriverError for each driver that could not list its
// devices; those of the others come with it. That a driver can have none, because
// its library is not installed or the system is not one that it serves, is an error
// only if no device was found at all; Drivers always tells. A device that was found
// but cannot be used is in the list, with its Err.
func Devices() ([]Device, error) {
	if err := switchedOff(""); err != nil {
		return nil, err
	}
	return devicesOf(driver.Drivers())
}

func driversOf(drivers []driver.Driver) []Driver {
	all := make([]Driver, len(drivers))
	for i, d := range drivers {
		all[i].Name = d.Name()
		if all[i].Err = switchedOff(""); all[i].Err == nil {
			_, all[i].Err = d.Devices()
		}
		if l, ok := d.(driver.Loader); ok {
			all[i].Libraries = l.Libraries()
		}
	}
	return all
}

func devicesOf(drivers []driver.Driver) ([]Device, error) {
	local, err := localAddrs()
	errs := []error{err}
	var found []Device
	var absent []error
	for _, driver := range drivers {
		devices, err := driver.Devices()
		switch {
		case err == nil:
		case errors.Is(err, ErrNoDevice), errors.Is(err, verbs.ErrNotSupported):
			absent = append(absent, &cm.DriverError{Driver: driver.Name(), Err: err})
		default:
			errs = append(errs, &cm.DriverError{Driver: driver.Name(), Err: err})
		}
		for _, device := range devices {
			found = append(found, examine(driver, device, local))
		}
	}
	if len(found) == 0 {
		errs = append(errs, absent...)
	}
	return found, errors.Join(errs...)
}

// localAddrs are the addresses of this host, link-local ones with their zones.
func localAddrs() (all []netip.Addr, err error) {
	nics, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, nic := range nics {
		addrs, err := nic.Addrs()
		if err != nil {
			continue // the interface went away meanwhile
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			addr := p.Addr().Unmap()
			if addr.Is6() && addr.IsLinkLocalUnicast() {
				addr = addr.WithZone(nic.Name)
			}
			all = append(all, addr)
		}
	}
	return all, nil
}

// examine asks a device for all there is to know.
func examine(driver driver.Driver, device verbs.Device, local []netip.Addr) Device {
	d := Device{Name: device.Name(), Driver: driver.Name(), Transport: device.Transport(), NodeGUID: GUID(device.GUID())}
	addrs, addrsErr := addrsOf(driver, device.Name(), local)
	d.Addrs = addrs
	d.Err = errors.Join(d.query(device), addrsErr)
	return d
}

// addrsOf picks the addresses that lead to a device: to each of them the driver
// has a route on it.
func addrsOf(driver driver.Driver, device string, local []netip.Addr) (addrs []netip.Addr, err error) {
	for _, a := range local {
		route, err := driver.Route(device, a)
		switch {
		case err == nil && route.Device == device:
			addrs = append(addrs, a)
		case err != nil && !errors.Is(err, ErrNoRoute):
			return addrs, err // it would be the same for all
		}
	}
	return addrs, nil
}

func (d *Device) query(device verbs.Device) (err error) {
	ctx, err := device.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	d.Firmware, d.Caps, d.MaxQP, d.MaxCQ, d.MaxMR = attr.FWVer, attr.Caps, attr.MaxQP, attr.MaxCQ, attr.MaxMR
	if attr.NodeGUID != 0 {
		d.NodeGUID = GUID(attr.NodeGUID)
	}
	var errs []error
	for n := 1; n <= attr.PhysPortCnt; n++ {
		attr, gids, err := verbs.PortGIDs(ctx, uint8(n))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d: %w", n, err))
		}
		if attr != (verbs.PortAttr{}) { // a part of the table is better than nothing
			d.Ports = append(d.Ports, newPort(uint8(n), attr, gids))
		}
	}
	return errors.Join(errs...)
}

func newPort(number uint8, attr verbs.PortAttr, gids []verbs.PortGID) Port {
	p := Port{
		Number: number, State: attr.State, LinkLayer: attr.LinkLayer, LID: attr.LID,
		ActiveMTU: attr.ActiveMTU.Bytes(), MaxMTU: attr.MaxMTU.Bytes(),
	}
	for _, g := range gids {
		p.GIDs = append(p.GIDs, GID{Index: g.Index, GID: g.GID, Type: g.Type, NetDev: g.NetDev, Addr: ipOf(g.GIDEntry)})
	}
	return p
}

// ipOf is the IP address that a GID stands for: RoCE makes GIDs of addresses.
func ipOf(e verbs.GIDEntry) netip.Addr {
	if e.Type == verbs.GIDTypeIB {
		return netip.Addr{}
	}
	a := e.GID.Addr()
	if a.Is6() && a.IsLinkLocalUnicast() {
		a = a.WithZone(e.NetDev)
	}
	return a
}
