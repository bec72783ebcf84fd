package cm

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A Port is where an address of this host belongs: a device, one of its ports, and an
// entry of the port's GID table. PortFor finds it. A QP that is brought up by hand needs
// all three together: it is the port that INIT names, and the port and the GID index
// that the address vector of RTR names.
type Port struct {
	Device verbs.Device
	verbs.PortGID
}

// PortFor finds the port that a local address belongs to, on the named device, or if
// device is "" on any. Of several entries for one address it takes that of RoCE v2. An
// address on InfiniBand is that of an IPoIB interface, or the port's own GID. An IPv6
// link-local address that several interfaces have needs its zone.
//
// The software device has every address of the host but reaches no other host, so if
// it is not named it comes after devices that do. iWARP is left out, because its QPs
// can only be connected by Connect and Accept: the error is then a verbs.ErrNotSupported.
//
// If no active port has the address the error is a *NoPortError, which lists what was
// looked at. GID tables change when addresses do: what was found is for use at once.
func PortFor(device string, local netip.Addr) (Port, error) {
	return portFor(driver.Drivers(), device, local, ownersOf)
}

// PortOf is PortFor on a device that is open.
func PortOf(ctx verbs.Context, local netip.Addr) (Port, error) {
	s, err := newPortSearch(ctx.Device().Name(), local, ownersOf)
	if err != nil {
		return Port{}, err
	}
	return s.result(s.open(ctx))
}

func portFor(drivers []driver.Driver, device string, local netip.Addr, owners ownersFunc) (Port, error) {
	s, err := newPortSearch(device, local, owners)
	if err != nil {
		return Port{}, err
	}
	devices, err := devicesOf(drivers)
	s.failed.Err = err
	slices.SortStableFunc(devices, func(a, b verbs.Device) int { return lastResort(a) - lastResort(b) })
	for _, d := range devices {
		if device != "" && d.Name() != device {
			continue
		}
		if p, err := s.device(d); p.Device != nil || err != nil {
			return p, err
		}
	}
	return s.result(Port{}, nil)
}

// lastResort orders devices: those last that reach this host only.
func lastResort(d verbs.Device) int {
	if d.Transport() == verbs.TransportSoftware {
		return 1
	}
	return 0
}

// portSearch looks for the port of an address.
type portSearch struct {
	*portMatch
	failed NoPortError
}

func newPortSearch(device string, local netip.Addr, owners ownersFunc) (*portSearch, error) {
	m, err := newPortMatch(local, owners)
	if err != nil {
		return nil, err
	}
	return &portSearch{m, NoPortError{Addr: local, Device: device}}, nil
}

// result is what was found, or the error that says where it was not.
func (s *portSearch) result(p Port, err error) (Port, error) {
	if p.Device == nil && err == nil {
		err = &s.failed
	}
	return p, err
}

// device looks at a device that is not open.
func (s *portSearch) device(d verbs.Device) (Port, error) {
	ctx, err := d.Open()
	if err != nil {
		s.looked(PortLook{Device: d.Name(), Err: err})
		return Port{}, nil
	}
	defer ctx.Close() // nothing was made from it
	return s.open(ctx)
}

// open looks at all ports of a device. A Port without Device is none.
func (s *portSearch) open(ctx verbs.Context) (Port, error) {
	d := ctx.Device()
	attr, err := ctx.QueryDevice()
	if err != nil {
		s.looked(PortLook{Device: d.Name(), Err: err})
		return Port{}, nil
	}
	for port := 1; port <= attr.PhysPortCnt; port++ {
		attr, gids, err := verbs.PortGIDs(ctx, uint8(port))
		look := PortLook{Device: d.Name(), Port: uint8(port), State: attr.State, Err: err}
		for _, g := range gids {
			look.GIDs = append(look.GIDs, g.GIDEntry)
		}
		if d.Transport() == verbs.TransportIWARP {
			if look.Err == nil && s.mayBelong(gids) {
				look.Err = errIWARP
			}
			s.looked(look)
			continue
		}
		found, err := s.best(gids)
		if err != nil {
			return Port{}, err
		}
		look.Has = found != nil
		if look.Has && attr.State == verbs.PortActive {
			return Port{d, *found}, nil
		}
		s.looked(look)
	}
	return Port{}, nil
}

func (s *portSearch) looked(l PortLook) { s.failed.Looked = append(s.failed.Looked, l) }

var errIWARP = fmt.Errorf("QPs of iWARP can only be connected by the connection manager: %w", verbs.ErrNotSupported)

// A NoPortError means that no port is there for an address, and where it was looked for.
type NoPortError struct {
	Addr   netip.Addr
	Device string     // the device that was asked for, "" if any would do
	Looked []PortLook // in order
	Err    error      // what drivers said that could not list their devices, or nil
}

// A PortLook is one place where an address was looked for.
type PortLook struct {
	Device string
	Port   uint8 // 0 if the device could not be asked for its ports
	State  verbs.PortState
	GIDs   []verbs.GIDEntry
	Has    bool  // the address is there, but the port is not active
	Err    error // why it could not be looked at, or is of no use; or nil
}

func (e *NoPortError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cm: %s belongs to no RDMA port that is active", e.Addr)
	if e.Device != "" {
		fmt.Fprintf(&b, " on device %q", e.Device)
	}
	sep := ": "
	for _, l := range e.Looked {
		b.WriteString(sep + l.String())
		sep = "; "
	}
	if len(e.Looked) == 0 {
		b.WriteString(sep + verbs.ErrNoDevice.Error())
		sep = "; "
	}
	if e.Err != nil {
		b.WriteString(sep + strings.ReplaceAll(e.Err.Error(), "\n", "; "))
	}
	return b.String()
}

// mostAddrs bounds the addresses of a port that a message names.
const mostAddrs = 8

func (l PortLook) String() string {
	s := l.Device
	if l.Port != 0 {
		s += fmt.Sprintf(" port %d (%s)", l.Port, l.State)
	}
	switch {
	case l.Err != nil:
		return s + ": " + l.Err.Error()
	case l.Has:
		return s + " has it"
	}
	var addrs []string
	for _, g := range l.GIDs {
		if a := g.GID.Addr().String(); !slices.Contains(addrs, a) { // RoCE v1 and v2 have an entry each
			addrs = append(addrs, a)
		}
	}
	if more := len(addrs) - mostAddrs; more > 0 {
		addrs = append(addrs[:mostAddrs], fmt.Sprintf("%d more", more))
	}
	if len(addrs) == 0 {
		return s + " has no address"
	}
	return s + " has " + strings.Join(addrs, ", ")
}

// Unwrap returns ENETDOWN if only the port is not active, else EADDRNOTAVAIL, as
// bind(2) has them; verbs.ErrNoDevice if no device was there to look at; and what was wrong
// with those that were.
func (e *NoPortError) Unwrap() []error {
	errs := []error{syscall.EADDRNOTAVAIL}
	if slices.ContainsFunc(e.Looked, func(l PortLook) bool { return l.Has }) {
		errs[0] = syscall.ENETDOWN
	}
	if len(e.Looked) == 0 {
		errs = append(errs, verbs.ErrNoDevice)
	}
	for _, l := range e.Looked {
		if l.Err != nil {
			errs = append(errs, l.Err)
		}
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}
