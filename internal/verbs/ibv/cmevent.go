//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// onEvent takes the id to the state that an event leads to and tells the
// application. It runs on the goroutine of the channel.
func (id *cmID) onEvent(ev *cmEvent) {
	out := verbs.CMEvent{Type: ev.typ, ID: id, Param: ev.param, Err: id.cause(ev)}
	if ev.typ == verbs.CMEstablished {
		id.mu.Lock()
		q := id.qp
		id.mu.Unlock()
		q.established()
		q.shortenRNR()
	}
	id.mu.Lock()
	if id.handle == 0 || !id.step(ev, &out) {
		id.mu.Unlock()
		return
	}
	id.events.Push(out)
	id.mu.Unlock()
	id.events.Deliver()
}

// step changes the state; false says that the event concerns nobody any more. mu
// is held.
func (id *cmID) step(ev *cmEvent, out *verbs.CMEvent) bool {
	switch ev.typ {
	case verbs.CMAddrResolved:
		if id.state != cmResolvingAddr {
			return false
		}
		id.local = ev.local
		if err := id.adopt(ev.verbs); err != nil {
			id.state = cmFailed
			*out = verbs.CMEvent{Type: verbs.CMAddrError, ID: id, Err: err}
			return true
		}
		id.state = cmAddrResolved
	case verbs.CMAddrError:
		if id.state != cmResolvingAddr || id.askAgain(ev) {
			return false
		}
		id.state = cmIdle
		if id.bound {
			id.state = cmBound
		}
	case verbs.CMRouteResolved:
		if id.state != cmResolvingRoute {
			return false
		}
		id.state = cmRouteResolved
	case verbs.CMRouteError:
		if id.state != cmResolvingRoute {
			return false
		}
		id.state = cmAddrResolved
	case verbs.CMConnectResponse:
		if id.state != cmConnecting {
			return false
		}
		id.stopTimer()
		id.state = cmResponded
	case verbs.CMEstablished:
		return id.established()
	case verbs.CMRejected, verbs.CMUnreachable, verbs.CMConnectError:
		if id.state != cmConnecting && id.state != cmAccepting && id.state != cmResponded {
			return false
		}
		id.stopTimer()
		id.state = cmFailed
		if ev.typ == verbs.CMRejected {
			out.Reason = rejectReason(ev.status)
		}
	case verbs.CMDisconnected:
		if id.state != cmConnected && id.state != cmAccepting {
			return false
		}
		id.state = cmDisconnected
		// The answer to a peer that has disconnected, which waits for it; it takes
		// our QP to ERR, too. On the side that began it changes nothing.
		_ = id.call("rdma_disconnect", id.ch.lib.disconnect, id.handle)
	case verbs.CMDeviceRemoval:
		if id.lost {
			return false // the kernel and the device may both say it
		}
		id.lost = true
		id.stopTimer()
		if id.state != cmListening {
			id.state = cmFailed
		}
	}
	return true
}

// established is step for ESTABLISHED.
func (id *cmID) established() bool {
	switch id.state {
	case cmConnecting, cmAccepting:
		id.stopTimer()
		id.state = cmConnected
		return true
	case cmFailed:
		// It took longer than the application was ready to wait.
		_ = id.call("rdma_disconnect", id.ch.lib.disconnect, id.handle)
	}
	return false
}

// rejectReason is the status of a REJECTED event: IBA's reason, or an errno where
// the transport has none (iWARP).
func rejectReason(status int32) verbs.RejectReason {
	switch {
	case status >= 0:
		return verbs.RejectReason(status)
	case syscall.Errno(-status) == syscall.ECONNREFUSED:
		return verbs.RejectConsumer
	case syscall.Errno(-status) == syscall.ETIMEDOUT:
		return verbs.RejectTimeout
	}
	return verbs.RejectNone
}

// cause is why the event reports a failure, nil if it reports none.
func (id *cmID) cause(ev *cmEvent) error {
	peer := id.RemoteAddr()
	switch ev.typ {
	case verbs.CMRejected:
		return id.rejection(ev)
	case verbs.CMAddrError:
		return fmt.Errorf("no RDMA device leads to %v: %w", peer, statusError(ev, syscall.EHOSTUNREACH))
	case verbs.CMRouteError:
		return fmt.Errorf("no path to %v: %w", peer, statusError(ev, syscall.EHOSTUNREACH))
	case verbs.CMUnreachable:
		return fmt.Errorf("%v did not answer: %w", peer, statusError(ev, syscall.ETIMEDOUT))
	case verbs.CMConnectError:
		if ev.status == -int32(syscall.EINVAL) {
			// The kernel has no connection that could be brought up any more.
			return fmt.Errorf("%v gave the connection up before its answer was read here: %w: %w", peer, verbs.ErrPeerGone, syscall.ECONNRESET)
		}
		return fmt.Errorf("connection with %v: %w", peer, statusError(ev, syscall.ECONNRESET))
	case verbs.CMMulticastError:
		return statusError(ev, syscall.EINVAL)
	case verbs.CMDeviceRemoval:
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
	if errno == 0 || errno > 4095 {
		errno = otherwise
	}
	return failed(ev.typ.String(), errno)
}

func (id *cmID) rejection(ev *cmEvent) error {
	peer := id.RemoteAddr()
	switch reason := rejectReason(ev.status); reason {
	case verbs.RejectConsumer:
		return fmt.Errorf("refused by the application at %v: %w", peer, syscall.ECONNREFUSED)
	case verbs.RejectNoService:
		return fmt.Errorf("nobody listens at %v: %w", peer, syscall.ECONNREFUSED)
	case verbs.RejectTimeout:
		return fmt.Errorf("refused by %v: %w", peer, syscall.ETIMEDOUT)
	default:
		return fmt.Errorf("refused by %v, reason %v: %w", peer, reason, syscall.ECONNREFUSED)
	}
}
