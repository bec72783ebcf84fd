//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// The connection manager: cmid.go is the id and its life, cmbind.go how it gets
// its addresses, cmlisten.go and cmhalfopen.go a listener and its half-open dialers,
// cmdial.go and cmaccept.go the two sides of the exchange in control/messages.go, cmlink.go
// what follows it.

// CreateID makes an id on the named device; "" is the usual one.
func (softDriver) CreateID(device string, sink driver.CMSink) (driver.CMID, error) {
	dev, err := findDevice(device)
	if err != nil {
		return nil, err
	}
	if sink == nil {
		return nil, fmt.Errorf("no sink for the events: %w", verbs.ErrInvalid)
	}
	return newID(dev, sink), nil
}
