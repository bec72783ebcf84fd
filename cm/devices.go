package cm

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Devices lists the devices of every driver. The error joins what the drivers
// said that could not look; it may come together with devices of the others.
func Devices() ([]verbs.Device, error) { return devicesOf(driver.Drivers()) }
