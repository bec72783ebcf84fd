//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Driver returns the driver. It is registered by package drivers, which decides
// on the order.
func Driver() driver.Driver { return ibvDriver{} }

// driver is driver.Driver; its connection manager is in cm.go, its routes in
// route.go.
type ibvDriver struct{}

func (ibvDriver) Name() string { return "ibv" }

func (ibvDriver) Devices() ([]verbs.Device, error) {
	list, err := listDevices()
	if err != nil {
		return nil, err
	}
	devices := make([]verbs.Device, len(list))
	for i, d := range list {
		devices[i] = d
	}
	return devices, nil
}
