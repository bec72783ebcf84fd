package driver

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A Driver brings devices and a connection manager.
type Driver interface {
	// Name names the driver: "soft", "ibv".
	Name() string
	// Devices lists the devices that are present. An error says why there can be
	// none, as a missing library.
	Devices() ([]verbs.Device, error)
	// Route finds out from where dst is reached by the named device, or by
	// the best one if device is "". verbs.ErrNoRoute or verbs.ErrNoDevice otherwise.
	Route(device string, dst netip.Addr) (Route, error)
	// CreateID makes a CMID (rdma_create_id, port space RDMA_PS_TCP) on the named
	// device, or on whichever the address leads to if device is "".
	CreateID(device string, sink CMSink) (CMID, error)
}

// A Loader is a Driver that loads libraries.
type Loader interface {
	Driver
	// Libraries loads what is not loaded yet and says what came of it.
	Libraries() []verbs.Library
}

var registry struct {
	sync.Mutex
	drivers []Driver
}

// Register adds a driver. Drivers call it from init; the first registered is asked first.
func Register(d Driver) {
	registry.Lock()
	defer registry.Unlock()
	registry.drivers = append(registry.drivers, d)
}

// Drivers returns the registered drivers in order.
func Drivers() []Driver {
	registry.Lock()
	defer registry.Unlock()
	return slices.Clone(registry.drivers)
}
