//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"net/netip"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Route answers for the software device, which reaches the addresses of this
// host.
func (softDriver) Route(device string, dst netip.Addr) (driver.Route, error) {
	dev, err := findDevice(device)
	if err != nil {
		return driver.Route{}, err
	}
	to, err := reachable(dst)
	if err != nil {
		return driver.Route{}, err
	}
	from, err := sourceFor(to)
	if err != nil {
		return driver.Route{}, err
	}
	return driver.Route{Device: dev.name, Src: displayed(from), SameHost: true}, nil
}

// reachable returns dst in its canonical form, the unspecified address as
// loopback, if it is an address of this host.
func reachable(dst netip.Addr) (netip.Addr, error) {
	if !dst.IsValid() {
		return dst, fmt.Errorf("no destination address: %w", verbs.ErrInvalid)
	}
	to := canonical(dst)
	if to.IsUnspecified() {
		to = loopbackFor(to)
	}
	local, err := isLocal(to)
	if err != nil {
		return to, err
	}
	if !local {
		return to, driver.Explain("not an address of this host, and the software device reaches no other", verbs.ErrNoRoute)
	}
	return to, nil
}
