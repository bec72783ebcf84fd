package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// selfTestTime bounds the self-test of one device.
const selfTestTime = 20 * time.Second

// outcome is what an echo came to.
type outcome struct {
	bytes int64
	took  time.Duration
	costs costs
}

// checkEcho sends data through a device to this process itself.
func (h *host) checkEcho(ctx context.Context, d rdmanet.Device) (check, costs) {
	t := topic{"self-test", d.Name}
	at := bestAddr(d.Addrs)
	ctx, cancel := context.WithTimeout(ctx, selfTestTime)
	defer cancel()
	o, err := h.echo(ctx, d.Name, at)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return t.fail(h.fix(err), "on %v: not all came back within %v", at, selfTestTime), costs{}
	case err != nil:
		return t.fail(h.fix(err), "on %v: %s", at, oneLine(err)), costs{}
	}
	return t.ok("%s there and back in %s on %v, unchanged", console.Size(o.bytes), console.Latency(o.took), at), o.costs
}

// bestAddr is the address that is the least special: no link-local one if there are others.
func bestAddr(addrs []netip.Addr) netip.Addr {
	for _, ok := range []func(netip.Addr) bool{
		func(a netip.Addr) bool { return a.Is4() && !a.IsLinkLocalUnicast() },
		func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() },
	} {
		for _, a := range addrs {
			if ok(a) {
				return a
			}
		}
	}
	return addrs[0]
}

// checkChosen checks devices that were asked for by name and are in no list: they are
// not here, or it is one of those that are only for tests.
func (h *host) checkChosen(ctx context.Context, only string, all []rdmanet.Device) (checks []check) {
	asked := []struct{ name, by, undo string }{
		{only, "-device", h.self},
		{h.chosen, "RDMANET_DEVICE", "unset RDMANET_DEVICE"},
	}
	for i, a := range asked {
		if a.name == "" || a.name == switchedOff || slices.ContainsFunc(all, func(d rdmanet.Device) bool { return d.Name == a.name }) || i > 0 && a.name == only {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, selfTestTime)
		_, err := h.echo(ctx, a.name, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		cancel()
		t := topic{"device", a.name}
		switch {
		case errors.Is(err, verbs.ErrNoDevice):
			checks = append(checks, t.fail(a.undo, "%s asks for it, but there is none of this name", a.by))
		case err != nil:
			checks = append(checks, t.fail(a.undo, "%s asks for it: %s", a.by, oneLine(err)))
		default:
			checks = append(checks, t.ok("%s asks for it, and it works", a.by))
		}
	}
	return checks
}
