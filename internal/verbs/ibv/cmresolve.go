//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func (id *cmID) BindAddr(addr netip.AddrPort) error {
	var c sockaddr
	if err := c.put(addr); err != nil {
		return err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("BindAddr", cmIdle); err != nil {
		return err
	}
	if addr.Addr().IsLoopback() {
		// The kernel would bind to some device, and nobody could connect.
		return driver.Explain("no RDMA device has a loopback address", syscall.EADDRNOTAVAIL)
	}
	// AFOnly means something for the IPv6 wildcard alone, but for the kernel an address
	// without it is in the way of the other family's wildcard.
	apart := addr.Addr() == netip.IPv6Unspecified() && !id.opts.AFOnly && id.mayListenOnIWARP()
	if addr.Addr() != netip.IPv6Unspecified() || apart {
		if err := id.setOptions(driver.CMOptions{AFOnly: true}); err != nil {
			return err
		}
	}
	if err := id.call("rdma_bind_addr", id.ch.lib.bindAddr, id.handle, uintptr(unsafe.Pointer(&c))); err != nil {
		switch own, unknown := isLocal(addr.Addr()); {
		case unknown != nil:
			err = fmt.Errorf("%w: %w", err, unknown)
		case errors.Is(err, syscall.ENODEV) && !own:
			err = syscall.EADDRNOTAVAIL
		case errors.Is(err, syscall.EADDRNOTAVAIL) && own:
			err = syscall.EADDRINUSE // so it is for a wildcard that covers it, or that it covers
		}
		return fmt.Errorf("bind to %v: %w", addr, err)
	}
	err := id.refresh()
	if err == nil {
		err = id.checkTCPPorts()
	}
	if err == nil && apart {
		err = id.bindIPv4()
	}
	if err != nil {
		id.state = cmFailed // librdmacm has no way to unbind
		return fmt.Errorf("bind to %v: %w", addr, err)
	}
	id.state, id.bound, id.port = cmBound, true, addr.Port() != 0
	return nil
}

func (id *cmID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	if id.device != "" && !src.IsValid() {
		// Of several devices that reach dst the kernel would take its own choice.
		if r, err := (ibvDriver{}).Route(id.device, dst.Addr()); err == nil {
			src = netip.AddrPortFrom(r.Src, 0)
		}
	}
	if err := id.checkRouteTCPPorts(dst.Addr()); err != nil {
		return fmt.Errorf("resolve %v: %w", dst, err)
	}
	q := query{until: time.Now().Add(timeout), wait: firstWait}
	if err := q.to.put(dst); err != nil {
		return err
	}
	from := new(sockaddr)
	if src.IsValid() {
		if err := from.put(src); err != nil {
			return err
		}
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("ResolveAddr", cmIdle, cmBound); err != nil {
		return err
	}
	if src.IsValid() && !id.bound {
		q.from = from
	}
	was := id.state
	id.state = cmResolvingAddr
	id.remote = dst
	id.port = id.port || src.Port() != 0
	id.query = q
	if err := id.ask(); err != nil {
		id.state = was
		return fmt.Errorf("resolve %v: %w", dst, err)
	}
	return nil
}

// A query is for the device and the hardware address of a destination. The kernel
// waits for news of the neighbour, but misses the news that comes before it waits, and
// looks again only when its time is up. So it is given little time, and asked again.
type query struct {
	from  *sockaddr // nil: the kernel's choice
	to    sockaddr
	until time.Time
	wait  time.Duration // the next one
}

const (
	firstWait = 25 * time.Millisecond
	lastWait  = time.Second
)

// ask is rdma_resolve_addr. mu is held.
func (id *cmID) ask() error {
	q := &id.query
	wait := min(q.wait, time.Until(q.until))
	q.wait = min(2*q.wait, lastWait)
	return id.call("rdma_resolve_addr", id.ch.lib.resolveAddr, id.handle, uintptr(unsafe.Pointer(q.from)), uintptr(unsafe.Pointer(&q.to)), milliseconds(wait))
}

// askAgain does so if the kernel's time was up and ours is not. mu is held.
func (id *cmID) askAgain(ev *cmEvent) bool {
	timedOut := errors.Is(statusError(ev, syscall.EHOSTUNREACH), syscall.ETIMEDOUT)
	return timedOut && time.Now().Before(id.query.until) && id.ask() == nil
}

// ResolveRoute has the route resolved on a goroutine of its own. librdmacm asks the daemon
// ibacm first, if that runs, under a lock of the process and for as long as the daemon
// takes. Nobody waits for that beyond timeout or Close: the call is left alone then, and
// whoever waited for its turn is gone.
func (id *cmID) ResolveRoute(timeout time.Duration) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("ResolveRoute", cmAddrResolved); err != nil {
		return err
	}
	id.state = cmResolvingRoute
	handle := id.useLocked()
	abandoned := make(chan struct{})
	id.abandoned = abandoned
	var begun, asked atomic.Bool // asked: the library has, and the kernel is at it
	begun.Store(id.ch.routes.takeNow())
	local := id.ctx != nil && id.ctx.dev.transport != verbs.TransportIB
	id.timer = time.AfterFunc(timeout, func() {
		why := routeTimedOut(timeout)
		switch {
		case !begun.Load():
			why = noTimeError{"the routes of other connections", timeout}
		case asked.Load() && local:
			why = noTimeError{"a route that the kernel knows by itself", timeout}
		}
		id.noRoute(abandoned, why, true)
	})
	go func() {
		if !begun.Load() {
			if !id.ch.routes.takeUnless(abandoned) {
				_ = id.unuse()
				return
			}
			begun.Store(true)
		}
		r, errno := id.ch.verbs.callErrno(id.ch.lib.resolveRoute, handle, milliseconds(timeout))
		asked.Store(int32(r) == 0)
		id.ch.routes.give()
		_ = id.unuse()
		if int32(r) != 0 {
			id.noRoute(abandoned, failed("rdma_resolve_route", errno), false)
		}
	}()
	return nil
}

// A noTimeError is that of a ResolveRoute whose time went by behind those of others, or in
// a kernel that asks nobody, as those of RoCE and iWARP do: so it is in a crowd on a busy
// machine, and another one may have its turn.
type noTimeError struct {
	what  string
	after time.Duration
}

func (e noTimeError) Error() string {
	return fmt.Sprintf("%s took longer than %v", e.what, e.after)
}

func (noTimeError) Is(target error) bool {
	return target == verbs.ErrTryAgain || target == syscall.ETIMEDOUT
}

func routeTimedOut(timeout time.Duration) error {
	return fmt.Errorf("not resolved within %v: %w", timeout, syscall.ETIMEDOUT)
}

// noRoute tells that a ResolveRoute, of which abandoned is, has failed. It may have ended, and another
// begun, since its time was up. An id whose call is left alone serves no more: the kernel may
// still resolve the route.
func (id *cmID) noRoute(abandoned chan struct{}, why error, leave bool) {
	id.mu.Lock()
	if id.abandoned != abandoned || id.state != cmResolvingRoute {
		id.mu.Unlock()
		return
	}
	id.stopTimer()
	id.state = cmAddrResolved
	if leave {
		id.abandon()
		id.state = cmFailed
	}
	id.events.Push(driver.CMEvent{
		Type: driver.CMRouteError, ID: id, Err: fmt.Errorf("no path to %v: %w", id.remote, why),
	})
	id.mu.Unlock()
	id.events.Deliver()
}

// abandon leaves a ResolveRoute, or a Connect over TCP, alone that waits. mu is held.
func (id *cmID) abandon() {
	if id.abandoned != nil {
		close(id.abandoned)
		id.abandoned = nil
	}
}

// milliseconds is a timeout for C: at least one, and no more than an int holds.
func milliseconds(d time.Duration) uintptr {
	const most = 1<<31 - 1
	return uintptr(min(max(d.Milliseconds(), 1), most))
}
