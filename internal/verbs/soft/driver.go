//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// The devices. The second behaves as an iWARP RNIC does, without WRITE_WITH_IMM,
// and reaches only its like; it is not listed.
var (
	soft0      = &device{name: "soft0", guid: 0x0200_5eff_fe50_f700, transport: verbs.TransportSoftware}
	soft0iWARP = &device{name: "soft0-iwarp", guid: 0x0200_5eff_fe50_f701, transport: verbs.TransportIWARP}
)

func init() { driver.Register(softDriver{}) }

// softDriver is driver.Driver; its connection manager is in cmid.go, its routes in route.go.
type softDriver struct{}

func (softDriver) Name() string { return "soft" }

func (softDriver) Devices() ([]verbs.Device, error) { return []verbs.Device{soft0}, nil }

// findDevice returns the device of a name, the usual one for "".
func findDevice(name string) (*device, error) {
	switch name {
	case "", soft0.name:
		return soft0, nil
	case soft0iWARP.name:
		return soft0iWARP, nil
	}
	return nil, driver.Explain(fmt.Sprintf("the software driver has no device %q, only %s and %s", name, soft0.name, soft0iWARP.name), verbs.ErrNoDevice)
}
