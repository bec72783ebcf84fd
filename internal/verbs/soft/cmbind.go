//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func (id *cmID) BindAddr(addr netip.AddrPort) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("BindAddr", cmIdle); err != nil {
		return err
	}
	if err := id.bind(addr); err != nil {
		return err
	}
	id.state = cmBound
	return nil
}

// bind takes addr and opens the device. Called with mu held.
func (id *cmID) bind(addr netip.AddrPort) error {
	if !addr.Addr().IsValid() {
		return fmt.Errorf("no address to bind to: %w", verbs.ErrInvalid)
	}
	addr = netip.AddrPortFrom(canonical(addr.Addr()), addr.Port())
	claim, err := id.claimOrJoin(addr)
	if err != nil {
		return err
	}
	id.claim, id.local, id.ctx = claim, claim.addr, id.dev.sharedContext()
	return nil
}

// ResolveAddr finds the local address and takes a port for it. Both are known at
// once, and so are the events.
func (id *cmID) ResolveAddr(src, dst netip.AddrPort, _ time.Duration) error {
	defer id.events.Deliver()
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("ResolveAddr", cmIdle, cmBound); err != nil {
		return err
	}
	if !dst.Addr().IsValid() || dst.Port() == 0 {
		return fmt.Errorf("destination %v is not an address with a port: %w", dst, verbs.ErrInvalid)
	}
	to, err := reachable(dst.Addr())
	if err != nil {
		id.events.Push(driver.CMEvent{Type: driver.CMAddrError, ID: id, Err: err})
		return nil
	}
	dst = netip.AddrPortFrom(to, dst.Port())
	if err := id.bindSource(src, dst); err != nil {
		return err
	}
	id.ctx, id.remote, id.state = id.dev.sharedContext(), dst, cmAddrResolved
	id.events.Push(driver.CMEvent{Type: driver.CMAddrResolved, ID: id})
	return nil
}

// bindSource settles the local address of a dialer. Called with mu held.
func (id *cmID) bindSource(src, dst netip.AddrPort) error {
	if id.state == cmBound {
		if src.Addr().IsValid() {
			return fmt.Errorf("ResolveAddr from %v on an id that is bound to %v: %w", src, id.local, verbs.ErrInvalid)
		}
		src = id.local
	}
	from := canonical(src.Addr())
	if !from.IsValid() || from.IsUnspecified() && (from.Is4() == dst.Addr().Is4() || from.Is6() && !id.opts.AFOnly) {
		var err error
		if from, err = sourceFor(dst.Addr()); err != nil {
			return err
		}
	}
	if from.Is4() != dst.Addr().Is4() {
		return fmt.Errorf("from %v to %v, which is of the other address family: %w", src, dst, verbs.ErrInvalid)
	}
	switch {
	case id.state == cmBound:
		id.local = netip.AddrPortFrom(from, id.local.Port())
		return nil
	case src.Port() != 0:
		return id.bind(netip.AddrPortFrom(from, src.Port()))
	}
	if err := checkOwn(from); err != nil {
		return err
	}
	claim, err := bindEphemeral(id.dev.name, from, dst)
	if err != nil {
		return err
	}
	id.claim, id.local = claim, claim.addr
	return nil
}

func (id *cmID) ResolveRoute(time.Duration) error {
	defer id.events.Deliver()
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("ResolveRoute", cmAddrResolved); err != nil {
		return err
	}
	id.state = cmRouteResolved
	id.events.Push(driver.CMEvent{Type: driver.CMRouteResolved, ID: id})
	return nil
}
