//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// onEvent takes the id to the state that an event leads to, does with the QP and the
// library what follows of it, and tells the application. It is called for one event of an id at a
// time, but for the loss of the device, which comes from elsewhere.
func (id *cmID) onEvent(ev *cmEvent) {
	id.tellReset(ev)
	out := driver.CMEvent{Type: ev.typ, ID: id, Param: ev.param, Err: id.cause(ev)}
	id.mu.Lock()
	if id.handle == 0 {
		id.mu.Unlock()
		return
	}
	if id.confirming && ev.typ == driver.CMDisconnected {
		// The peer has read the confirmation before the call that sent it has returned.
		id.left = ev
		id.mu.Unlock()
		return
	}
	was := id.state
	concerns := id.step(ev, &out)
	if id.state != cmAccepting {
		id.endNotice()
	}
	q, asks := id.qp, id.opts.AskToConfirm
	handle := id.useLocked()
	id.mu.Unlock()
	defer id.events.Deliver() // when it is used no more
	defer func() { _ = id.unuse() }()

	switch {
	case !concerns:
		if was == cmFailed || was == cmDisconnected {
			id.tooLate(ev, q, handle)
		}
		return
	case ev.typ == driver.CMConnectResponse && q != nil && !asks:
		id.onAnswer(q, handle, &out)
	case out.Type == driver.CMEstablished:
		q.established()
	case out.Type == driver.CMDisconnected:
		// The answer to a peer that has disconnected, which waits for it, and what takes our
		// QP to ERR. On the side that began it changes nothing.
		_ = id.disconnect(q, handle)
	case ev.typ == driver.CMRejected, ev.err != nil:
		q.fail()
	}
	id.mu.Lock()
	if id.handle != 0 && (!id.lost || ev.typ == driver.CMDeviceRemoval) { // of a lost device nothing else is told
		if ev.typ == driver.CMDisconnected && was == cmAccepting && id.overIB() {
			// Only who has a connection takes leave of it (IBA 12.9.7): the confirmation was
			// lost, or the leave has overtaken it. What the peer has sent is there.
			id.events.Push(driver.CMEvent{Type: driver.CMEstablished, ID: id})
		}
		id.events.Push(out)
	}
	id.mu.Unlock()
}

// overIB reports whether InfiniBand's connection management is at work, which is that of
// RoCE, too. mu is held.
func (id *cmID) overIB() bool {
	return id.ctx != nil && (id.ctx.dev.transport == verbs.TransportIB || id.ctx.dev.transport == verbs.TransportRoCE)
}

// onAnswer brings the connection up with the answer that the peer has given.
func (id *cmID) onAnswer(q *qp, handle uintptr, out *driver.CMEvent) {
	err := id.confirm(q, handle)
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != cmResponded { // closed, or the device was removed
		return
	}
	if err == nil {
		id.state, out.Type = cmConnected, driver.CMEstablished
		return
	}
	id.state = cmFailed
	*out = driver.CMEvent{Type: driver.CMConnectError, ID: id, Err: id.notUp(err)}
}

// notUp is why the answer of a peer did not lead to a connection.
func (id *cmID) notUp(err error) error {
	if errors.Is(err, errNotReady) {
		return fmt.Errorf("connection with %v: %w", id.remote, err)
	}
	return causeFor(&cmEvent{typ: driver.CMConnectError, status: -int32(errnoOf(err))}, id.remote)
}

// tooLate answers a peer that took longer than the application was ready to wait: until it
// gave up, or disconnected.
func (id *cmID) tooLate(ev *cmEvent, q *qp, handle uintptr) {
	switch ev.typ {
	case driver.CMConnectResponse:
		_ = id.call("rdma_reject", id.ch.lib.reject, handle, 0, 0)
	case driver.CMEstablished:
		_ = id.disconnect(q, handle)
	}
}

// step changes the state, and reports whether the event still concerns anybody. mu is held.
func (id *cmID) step(ev *cmEvent, out *driver.CMEvent) bool {
	switch ev.typ {
	case driver.CMAddrResolved:
		if id.state != cmResolvingAddr {
			return false
		}
		id.local = ev.local.get()
		if err := id.adopt(ev.verbs); err != nil {
			id.state = cmFailed
			*out = driver.CMEvent{Type: driver.CMAddrError, ID: id, Err: err}
			return true
		}
		id.state = cmAddrResolved
	case driver.CMAddrError:
		if id.state != cmResolvingAddr || id.askAgain(ev) {
			return false
		}
		id.state = cmIdle
		if id.bound {
			id.state = cmBound
		}
	case driver.CMRouteResolved:
		if id.state != cmResolvingRoute {
			return false
		}
		id.stopTimer()
		id.state = cmRouteResolved
	case driver.CMRouteError:
		if id.state != cmResolvingRoute {
			return false
		}
		id.stopTimer()
		id.state = cmAddrResolved
	case driver.CMConnectResponse:
		if id.state != cmConnecting {
			return false
		}
		id.stopTimer()
		id.state = cmResponded
	case driver.CMEstablished:
		if id.state != cmConnecting && id.state != cmAccepting {
			return false
		}
		id.stopTimer()
		id.state = cmConnected
		if ev.status != 0 {
			// A listener's end that was not brought up after all: some devices of iWARP say
			// it so (qedr).
			id.state = cmFailed
			failed := &cmEvent{typ: driver.CMConnectError, status: ev.status}
			*out = driver.CMEvent{Type: driver.CMConnectError, ID: id, Err: causeFor(failed, id.remote)}
		}
	case driver.CMRejected, driver.CMUnreachable, driver.CMConnectError:
		return id.stepFailed(ev, out)
	case driver.CMDisconnected:
		if id.state != cmConnected && id.state != cmAccepting {
			return false
		}
		id.state = cmDisconnected
	case driver.CMDeviceRemoval:
		if id.lost {
			return false // the kernel and the device may both say it
		}
		id.lost = true
		id.stopTimer()
		id.abandon()
		if id.state != cmListening {
			id.state = cmFailed
		}
	}
	return true
}

// stepFailed is step for an event by which a connection fails. mu is held.
func (id *cmID) stepFailed(ev *cmEvent, out *driver.CMEvent) bool {
	if ev.typ == driver.CMUnreachable && id.neighbourNews() {
		return false
	}
	switch id.state {
	case cmConnected:
		// The peer ended after it had answered and before our confirmation reached it, so
		// its kernel took the answer back. What stands here ends with it.
		id.state = cmDisconnected
		*out = driver.CMEvent{Type: driver.CMDisconnected, ID: id, Err: ev.err}
		return true
	case cmConnecting, cmAccepting, cmResponded:
	default:
		return false
	}
	id.stopTimer()
	switch {
	case ev.typ == driver.CMRejected && ev.err == nil:
		out.Reason = rejectReason(ev.status)
	case ev.typ == driver.CMUnreachable && id.state == cmConnecting && id.overTCP != nil && id.ctx.isSoftIWARP():
		out.Err = id.slowToAnswer(ev)
	}
	if id.takenBack = ev.err == nil && (id.state == cmResponded || id.confirming); id.takenBack {
		out.Err = id.takenBackError()
	}
	id.state = cmFailed
	return true
}

// neighbourNews reports whether UNREACHABLE says only that the kernel's ARP or ND has news
// of a peer on RoCE (cma_netevent_callback). It says so of every id that has resolved a
// route there, connected or not, also while it looks for a neighbour that it had forgotten
// in an outage. Whether a connection has ended the retries of its QP and keepalive find
// out. An exchange that is under way is given up, as IP does. mu is held.
func (id *cmID) neighbourNews() bool {
	if id.ctx == nil || id.ctx.dev.transport != verbs.TransportRoCE {
		return false
	}
	switch id.state {
	case cmConnecting:
		return false
	case cmAccepting:
		return id.confirming // the listener's end has resolved no route
	}
	return true
}

// takenBackError is why an answer of the peer cannot be confirmed. Nothing was delivered.
func (id *cmID) takenBackError() error {
	return fmt.Errorf("%v took its answer back before it was confirmed: %w: %w: %w", id.remote, verbs.ErrTryAgain, verbs.ErrPeerGone, syscall.ECONNRESET)
}

// Reasons for which a peer's kernel refuses and that pass (IBA 12.6.7.2): it still knows
// a former connection by our QP number, or an exchange by its id, or has no room.
const (
	rejectNoQP         driver.RejectReason = 1
	rejectNoResources  driver.RejectReason = 3
	rejectCommID       driver.RejectReason = 6
	rejectCommInstance driver.RejectReason = 7
	rejectStale        driver.RejectReason = 10
)

// rejectReason is the status of a REJECTED event: IBA's reason, or an errno where
// the transport has none (iWARP).
func rejectReason(status int32) driver.RejectReason {
	if status >= 0 {
		return driver.RejectReason(status)
	}
	return iwarpReason(syscall.Errno(-status))
}

// cause is why the event reports a failure, nil if it reports none.
func (id *cmID) cause(ev *cmEvent) error { return causeFor(ev, id.RemoteAddr()) }

func causeFor(ev *cmEvent, peer netip.AddrPort) error {
	if ev.err != nil {
		return ev.err
	}
	switch ev.typ {
	case driver.CMRejected:
		return rejection(ev.status)
	case driver.CMAddrError:
		return fmt.Errorf("no RDMA device leads there: %w", statusError(ev, syscall.EHOSTUNREACH))
	case driver.CMRouteError:
		return fmt.Errorf("no path: %w", statusError(ev, syscall.EHOSTUNREACH))
	case driver.CMUnreachable:
		return driver.Explain("the host did not answer", statusError(ev, syscall.ETIMEDOUT))
	case driver.CMConnectError:
		if ev.status == -int32(syscall.EINVAL) {
			// The kernel has no connection that could be brought up any more.
			return driver.Explain("the listener gave the connection up before its answer was read here", verbs.ErrTryAgain, verbs.ErrPeerGone, syscall.ECONNRESET)
		}
		return fmt.Errorf("connection with %v: %w", peer, statusError(ev, syscall.ECONNRESET))
	case driver.CMMulticastError:
		return statusError(ev, syscall.EINVAL)
	case driver.CMDeviceRemoval:
		return fmt.Errorf("%w: the device was removed", verbs.ErrNoDevice)
	}
	if ev.status != 0 {
		return statusError(ev, syscall.EIO)
	}
	return nil
}

// statusError is an event's status as an error, or else otherwise.
func statusError(ev *cmEvent, otherwise syscall.Errno) error {
	errno := syscall.Errno(ev.status)
	if ev.status < 0 {
		errno = syscall.Errno(-ev.status)
	}
	if ev.status == -1 || errno == 0 || errno > 4095 { // -1 is librdmacm's own, of which errno is lost
		errno = otherwise
	}
	return failed(ev.typ.String(), errno)
}

func rejection(status int32) error {
	switch reason := rejectReason(status); reason {
	case driver.RejectConsumer:
		return driver.Explain("refused by the application", syscall.ECONNREFUSED)
	case driver.RejectNoService:
		return driver.Explain(driver.NoListener("the device of the address"), syscall.ECONNREFUSED)
	case driver.RejectTimeout:
		return driver.Explain("refused after its time", syscall.ETIMEDOUT)
	case rejectNoQP, rejectNoResources, rejectCommID, rejectCommInstance, rejectStale:
		// Another QP has another number, and a peer that has no room may have it soon.
		return driver.Explain(fmt.Sprintf("refused for the reason %v", reason), verbs.ErrTryAgain, syscall.ECONNREFUSED)
	default:
		return driver.Explain(fmt.Sprintf("refused for the reason %v", reason), syscall.ECONNREFUSED)
	}
}
