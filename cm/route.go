package cm

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// candidate is a driver with the route it has to an address.
type candidate struct {
	driver driver.Driver
	route  driver.Route
}

// findRoutes asks every driver how it would reach dst, on the named device if
// there is a name, and returns those that can, best first: to an address of this
// host the software device, then the drivers in the order they registered. The
// others' reasons come back as errors.
func findRoutes(drivers []driver.Driver, device string, dst netip.Addr) (found []candidate, errs []*DriverError) {
	for _, d := range drivers {
		r, err := d.Route(device, dst)
		if err != nil {
			errs = append(errs, &DriverError{Driver: d.Name(), Err: err})
			continue
		}
		found = append(found, candidate{d, r})
	}
	if len(found) > 1 && device == "" {
		for i, c := range found {
			if c.route.SameHost && isSoftware(c) {
				copy(found[1:i+1], found[:i])
				found[0] = c
				break
			}
		}
	}
	return found, errs
}

func isSoftware(c candidate) bool {
	devices, _ := c.driver.Devices() // a driver that cannot list is no software device
	for _, d := range devices {
		if d.Name() == c.route.Device {
			return d.Transport() == verbs.TransportSoftware
		}
	}
	return false
}

// cannotServe reports whether err means that a driver has nothing to do with an address,
// and not that the address is in use or forbidden.
func cannotServe(err error) bool {
	for _, target := range []error{
		verbs.ErrNoDevice, verbs.ErrNoRoute, verbs.ErrNotSupported,
		syscall.EADDRNOTAVAIL, syscall.ENODEV,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func devicesOf(drivers []driver.Driver) ([]verbs.Device, error) {
	var all []verbs.Device
	var errs []error
	for _, d := range drivers {
		devices, err := d.Devices()
		if err != nil {
			errs = append(errs, &DriverError{Driver: d.Name(), Err: err})
		}
		all = append(all, devices...)
	}
	return all, errors.Join(errs...)
}
