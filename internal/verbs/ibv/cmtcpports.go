//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"net/netip"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// iWARP's connections are the system's TCP's, and so are its ports: where a socket of TCP has
// the port already, rdma_listen fails, or the device takes clients that the socket should have
// had; and a dial by iWARP of a port that a socket has speaks MPA to a server that does not.

// checkTCPPorts refuses, where CMOptions.ApartFromTCP says so, an id that is bound to such a
// device or, by a wildcard, to all there are. mu is held.
func (id *cmID) checkTCPPorts() error {
	if !id.opts.ApartFromTCP {
		return nil
	}
	if id.ctx != nil {
		return refuseTCPPorts(id.ctx.dev)
	}
	all, err := listDevices()
	if err != nil {
		return err
	}
	return refuseTCPPorts(all...)
}

// checkRouteTCPPorts does so for an id that is to connect.
func (id *cmID) checkRouteTCPPorts(dst netip.Addr) error {
	id.mu.Lock()
	apart, device := id.opts.ApartFromTCP, id.device
	id.mu.Unlock()
	if !apart {
		return nil
	}
	r, err := (ibvDriver{}).Route(device, dst)
	if err != nil {
		return nil // rdma_resolve_addr will say what is wrong
	}
	d, err := findDevice(r.Device)
	if err != nil {
		return err
	}
	return refuseTCPPorts(d)
}

// refuseTCPPorts fails if one of the devices has its ports from TCP.
func refuseTCPPorts(devices ...*device) error {
	for _, d := range devices {
		if d.transport == verbs.TransportIWARP {
			return fmt.Errorf("%s: %w", d.name, verbs.ErrTCPPorts)
		}
	}
	return nil
}
