//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// iWARP's connections begin on TCP, whose refusals come as errno where the connection
// manager of InfiniBand has reasons (cma_iw_handler in the kernel).

// connectOverTCP is rdma_connect on iWARP, on a goroutine of its own: that of siw waits until
// TCP is connected, which takes minutes where nobody answers, and nothing can end it. Nobody
// waits for that but who destroys the id, and its QP, which the kernel holds as long. A call
// that has not begun when the id's time is up, or the id or its QP is closed, is not made. What is
// wrong is told by an event. mu is held.
func (id *cmID) connectOverTCP(c *cParam) {
	handle, listener := id.useLocked(), id.remote
	abandoned, over := make(chan struct{}), make(chan struct{})
	id.abandoned, id.overTCP = abandoned, over
	late := time.AfterFunc(id.ch.askPatience, id.notAsked)
	go func() {
		err := func() error {
			defer func() { _ = id.unuse() }()
			defer close(over)
			asks := id.mayAsk(listener, abandoned)
			late.Stop()
			if !asks || !id.ch.connects.takeUnless(listener.Addr(), abandoned) {
				return nil
			}
			defer id.ch.connects.give(listener.Addr())
			return id.withPrivateData(nil, c, "rdma_connect", id.ch.lib.connect, handle)
		}()
		if err != nil {
			id.notConnected(err) // whose sink may close the QP, which waits for over
		}
	}()
}

// mayAsk waits until the listener has answered enough of the requests before. False: nobody waits
// for this one any more, or it has waited for too long, and is to be made again. It counts until
// endAsking is called.
func (id *cmID) mayAsk(listener netip.AddrPort, abandoned <-chan struct{}) bool {
	if !id.ch.unanswered.takeUnless(listener, abandoned) {
		return false
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.asking = true
	if id.state != cmConnecting {
		id.endAsking()
		return false
	}
	return true
}

// notAsked gives up a request whose turn has not come, so that whoever made it can tell how long
// it has tried.
func (id *cmID) notAsked() {
	id.mu.Lock()
	listener := id.remote
	waits := !id.asking && id.state == cmConnecting
	if waits {
		id.abandon()
	}
	id.mu.Unlock()
	if waits {
		id.notConnected(fmt.Errorf("%v has not answered the requests before: %w", listener, verbs.ErrTryAgain))
	}
}

// endAsking is called when a request was answered, or will not be. mu is held.
func (id *cmID) endAsking() {
	if id.asking {
		id.asking = false
		id.ch.unanswered.give(id.remote)
	}
}

// notConnected tells that rdma_connect has failed, if somebody waits for it.
func (id *cmID) notConnected(err error) {
	id.mu.Lock()
	if id.state != cmConnecting {
		id.mu.Unlock()
		return
	}
	id.stopTimer()
	id.state = cmFailed
	ev, ok := id.failedAtOnce(err)
	if !ok {
		if id.portTaken(err) {
			err = fmt.Errorf("the port that was chosen is in use by a socket of TCP: %w: %w", verbs.ErrTryAgain, err)
		}
		ev = driver.CMEvent{Type: driver.CMConnectError, ID: id, Err: err}
	}
	id.events.Push(ev)
	id.mu.Unlock()
	id.events.Deliver()
}

// slowToAnswer is why a peer that TCP has reached is given up: siw waits ten seconds for the
// answer to MPA's request, which a listener with many clients may need. It did not give any.
// Other devices say the same where TCP has reached nobody.
func (id *cmID) slowToAnswer(ev *cmEvent) error {
	return fmt.Errorf("%v has not answered yet: %w: %w", id.remote, verbs.ErrTryAgain, statusError(ev, syscall.ETIMEDOUT))
}

// portTaken reports whether another id, which gets another port, may connect: the kernel's
// connection manager chooses ports without a look at TCP's, which the device (siw) binds a
// socket to afterwards. mu is held.
func (id *cmID) portTaken(err error) bool {
	return !id.port && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL))
}

// awaitTCP is for who destroys the QP: what has not begun is not made, and it waits until no
// rdma_connect over TCP is under way. id may be nil.
func (id *cmID) awaitTCP() {
	if id == nil {
		return
	}
	id.mu.Lock()
	over := id.overTCP
	if over != nil {
		id.abandon()
	}
	id.mu.Unlock()
	if over != nil {
		<-over
	}
}

// mayListenOnIWARP reports whether a wildcard has the id listen on a device of iWARP.
func (id *cmID) mayListenOnIWARP() bool {
	all, err := listDevices()
	return err == nil && slices.ContainsFunc(all, func(d *device) bool {
		return d.transport == verbs.TransportIWARP && (id.device == "" || id.device == d.name)
	})
}

// bindIPv4 gives the id, which is bound to the IPv6 wildcard, the same port of the IPv4
// wildcard, by a second struct. One socket of TCP could have both, and gives IPv4 clients
// addresses of IPv6 (::ffff:a.b.c.d), which the kernel's connection manager finds on no device:
// it refuses them. Whose struct an event is of nobody sees, since both have the id's key. mu is
// held.
func (id *cmID) bindIPv4() error {
	var c sockaddr
	addr := netip.AddrPortFrom(netip.IPv4Unspecified(), id.local.Port())
	if err := c.put(addr); err != nil {
		return err
	}
	var second uintptr
	if err := id.call("rdma_create_id", id.ch.lib.createID, id.ch.handle, uintptr(unsafe.Pointer(&second)), id.key, rdmaPSTCP); err != nil {
		return err
	}
	first := id.handle
	id.handle = second
	opts := id.opts
	opts.AFOnly = true
	err := id.setOptions(opts)
	if err == nil {
		err = id.call("rdma_bind_addr", id.ch.lib.bindAddr, second, uintptr(unsafe.Pointer(&c)))
	}
	id.handle = first
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = syscall.EADDRINUSE // as in BindAddr
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%v: %w", addr, err), id.ch.destroyID(second))
	}
	id.ipv4 = second
	return nil
}

// tellReset tells a reset of TCP from the application's refusal. Of the two MPA's reject comes as the
// reset with siw and erdma. With others (cxgb4, irdma) it is refused as such, and reset means
// that nobody listens there, or with irdma that nobody answers.
func (id *cmID) tellReset(ev *cmEvent) {
	if ev.typ != driver.CMRejected || ev.status != -int32(syscall.ECONNRESET) {
		return
	}
	id.mu.Lock()
	ctx := id.ctx
	id.mu.Unlock()
	if ctx == nil || ctx.dev.transport != verbs.TransportIWARP || ctx.isSoftIWARP() || ctx.limits.attr.VendorID == alibabaVendor {
		return
	}
	ev.err = driver.Explain("nobody listens there, or answers", syscall.ECONNREFUSED)
}

// alibabaVendor is the vendor id of erdma's devices.
const alibabaVendor = 0x1ded

// iwarpReason is the reason that an errno stands for: MPA's reject, of which the private
// data is the application's, comes as a reset with some (see tellReset).
func iwarpReason(errno syscall.Errno) driver.RejectReason {
	switch errno {
	case syscall.ECONNRESET, syscall.ECONNREFUSED:
		return driver.RejectConsumer
	case syscall.ETIMEDOUT:
		return driver.RejectTimeout
	}
	return driver.RejectNone
}

// failedAtOnce is the event by which devices that ask the peer tell what siw's rdma_connect,
// which waits for TCP to connect, says itself; false if err is no answer of the network.
func (id *cmID) failedAtOnce(err error) (driver.CMEvent, bool) {
	var errno syscall.Errno
	if id.ctx.dev.transport != verbs.TransportIWARP || !errors.As(err, &errno) {
		return driver.CMEvent{}, false
	}
	switch errno {
	case syscall.ECONNREFUSED:
		return driver.CMEvent{
			Type: driver.CMRejected, ID: id, Reason: driver.RejectNoService,
			Err: driver.Explain(driver.NoListener(id.ctx.dev.name), errno),
		}, true
	case syscall.ECONNRESET:
		return driver.CMEvent{
			Type: driver.CMRejected, ID: id, Reason: driver.RejectNone,
			Err: driver.Explain("reset by the peer", errno),
		}, true
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return driver.CMEvent{
			Type: driver.CMUnreachable, ID: id,
			Err: driver.Explain("the host did not answer", err),
		}, true
	}
	return driver.CMEvent{}, false
}
