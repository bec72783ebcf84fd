package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// dialEither dials on a network of TCP, by RDMA if that gets there.
func (d *Dialer) dialEither(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	p, err := d.plan(ctx, network, address)
	if err != nil {
		return nil, opError(opDial, network, nil, nil, err)
	}
	overTCP := func(ctx context.Context) (net.Conn, error) { return d.dialTCP(ctx, p) }

	promising, reason := d.promising(p)
	if reason != nil {
		conn, err := overTCP(ctx)
		if err != nil {
			return nil, d.neither(err, reason)
		}
		d.fellBack(p, conn, FallbackRemembered, reason)
		return conn, nil
	}
	overRDMA := func(ctx context.Context) (net.Conn, error) {
		conn, err := d.dialRDMA(ctx, promising)
		if err != nil {
			return nil, err // not a typed nil
		}
		return conn, nil
	}
	allHere := func() bool { return d.allHere(promising.addrs) }
	first, second := keepAhead(headStartHere, allHere, overRDMA, overTCP)
	conn, reason, err := race(ctx, headStart, first, second)
	if err != nil {
		return nil, d.neither(err, reason)
	}
	if reason != nil {
		reached, _ := conn.RemoteAddr().(*net.TCPAddr)
		for _, dst := range promising.addrs {
			err := promising.failure(dst)
			unreached.remember(d.destination(p.src, dst), err, lasts(err, d.retryRDMA()))
			if dst == unmapped(reached.AddrPort()) {
				reason = err // what RDMA met at others says nothing of this one
			}
		}
		d.fellBack(p, conn, reasonOf(reason), reason)
	}
	return conn, nil
}

// neither is the error of a dial that TCP could not do either: TCP's, which is what programs know,
// with RDMA's where that lies with this process or with what it is allowed to do. That nobody takes
// RDMA there, or that there is no device, says no more than TCP's does.
func (d *Dialer) neither(err, reason error) error {
	op, ok := err.(*net.OpError)
	if !ok {
		return err
	}
	switch reasonOf(reason) {
	case FallbackDenied, FallbackVersion, FallbackResources:
	case FallbackNoDevice:
		if deviceOr(d.Device) == "" {
			return err
		}
	default:
		return err
	}
	if r, ok := reason.(*net.OpError); ok {
		reason = r.Err // the rest is said
	}
	both := *op
	both.Err = &neitherError{op.Err, reason}
	return &both
}

// A neitherError is why a dial got there neither by TCP nor by RDMA. It is temporary, or a timeout,
// where TCP's is.
type neitherError struct{ tcp, rdma error }

func (e *neitherError) Error() string   { return fmt.Sprintf("%v (nor by RDMA: %v)", e.tcp, e.rdma) }
func (e *neitherError) Unwrap() []error { return []error{e.tcp, e.rdma} }

func (e *neitherError) Timeout() bool {
	t, ok := e.tcp.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (e *neitherError) Temporary() bool {
	t, ok := e.tcp.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// promising is the plan for RDMA: without the addresses that it failed to reach a
// short while ago. If that are all, it returns why the first failed.
func (d *Dialer) promising(p *dialPlan) (*dialPlan, error) {
	if d.RetryRDMA < 0 {
		return p, nil
	}
	less := *p
	less.addrs = nil
	var reason error
	for _, dst := range p.addrs {
		switch err := unreached.recall(d.destination(p.src, dst)); {
		case err == nil:
			less.addrs = append(less.addrs, dst)
		case reason == nil:
			reason = err
		}
	}
	if len(less.addrs) > 0 {
		return &less, nil
	}
	return nil, reason
}

// failure is why RDMA did not get to one of the addresses before TCP got to any: it was slow there, or its turn
// had not come, unless it has failed.
func (p *dialPlan) failure(dst netip.AddrPort) error {
	if err := p.failed[dst]; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return ErrSlow
}

// allHere reports whether all of addrs are known to be addresses of this host.
func (d *Dialer) allHere(addrs []netip.AddrPort) bool {
	return !slices.ContainsFunc(addrs, func(a netip.AddrPort) bool {
		return !slices.ContainsFunc(driver.Drivers(), func(drv driver.Driver) bool {
			r, err := drv.Route(deviceOr(d.Device), a.Addr())
			return err == nil && r.SameHost
		})
	})
}

func (d *Dialer) destination(src, dst netip.AddrPort) destination {
	return destination{deviceOr(d.Device), src.Addr(), dst}
}

func (d *Dialer) retryRDMA() time.Duration {
	if d.RetryRDMA == 0 {
		return DefaultRetryRDMA
	}
	return d.RetryRDMA
}

func (d *Dialer) fellBack(p *dialPlan, conn net.Conn, reason FallbackReason, err error) {
	e := &FallbackError{Op: opDial, Network: p.network, Addr: conn.RemoteAddr(), Reason: reason, Err: err}
	e.report(loggerOr(d.Logger), d.OnFallback)
}

// dialTCP dials by TCP as net.Dialer does: the addresses of one family in turn, with a
// head start before those of the other.
func (d *Dialer) dialTCP(ctx context.Context, p *dialPlan) (net.Conn, error) {
	nd := net.Dialer{LocalAddr: d.LocalAddr, KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig, Control: controlTOS(d.TOS, d.Control)}
	dialAll := func(addrs []netip.AddrPort) dialFunc {
		return func(ctx context.Context) (net.Conn, error) {
			return inTurn(ctx, addrs, func(ctx context.Context, dst netip.AddrPort) (net.Conn, error) {
				c, err := nd.DialContext(ctx, p.network, dst.String())
				return c, asTimeout(err)
			})
		}
	}
	first, second := byFamily(p.addrs)
	if len(second) == 0 {
		return dialAll(first)(ctx)
	}
	conn, err, secondErr := race(ctx, familyHeadStart, dialAll(first), dialAll(second))
	if secondErr == nil {
		return conn, nil
	}
	return nil, err
}

// asTimeout has the error of a dial by package net that took too long match what that of one by RDMA
// does. There are two for it there, each of which matches one of the two alone.
func asTimeout(err error) error {
	op, ok := err.(*net.OpError)
	if !ok || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	both := *op
	both.Err = &dialError{text: op.Err.Error(), timeout: true, is: []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, op.Err}}
	return &both
}

// byFamily parts the addresses of the first one's family from the others.
func byFamily(addrs []netip.AddrPort) (first, second []netip.AddrPort) {
	for _, a := range addrs {
		if a.Addr().Is4() == addrs[0].Addr().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	return first, second
}
