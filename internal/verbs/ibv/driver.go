//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// Driver returns the driver. It is registered by package drivers, which decides
// on the order.
func Driver() verbs.Driver { return driver{} }

// driver is verbs.Driver; its connection manager is in cm.go, its routes in
// route.go.
type driver struct{}

func (driver) Name() string { return "ibv" }

func (driver) Devices() ([]verbs.Device, error) {
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
