package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// DefaultResolveTimeout is how long ResolveAddr and ResolveRoute take at most when
// they are given no timeout.
const DefaultResolveTimeout = 5 * time.Second

// ResolveAddr finds the device and the local address for dst (rdma_resolve_addr).
// src may be the zero value, or name the local address, or its port. AddrResolved
// or AddrError follows within timeout; 0 means DefaultResolveTimeout. If no driver
// has a route to dst the call itself fails, with a *NoDriverError that says what each
// of them said.
func (id *ID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	if !dst.Addr().IsValid() {
		return fmt.Errorf("cm: resolve: no destination given: %w", verbs.ErrInvalid)
	}
	was, err := id.enter("resolve an address", StateAddrResolving, StateIdle, StateBound)
	if err != nil {
		return err
	}
	if err := id.resolveAddr(was == StateBound, src, dst, orDefault(timeout)); err != nil {
		id.leave(StateAddrResolving, was)
		return err
	}
	return nil
}

func (id *ID) resolveAddr(bound bool, src, dst netip.AddrPort, timeout time.Duration) error {
	id.setDst(dst)
	found, errs := findRoutes(id.drivers(), id.opts.Device, dst.Addr())
	for _, c := range found {
		l, err := id.legFor(c, bound)
		if err == nil {
			if err = l.id.ResolveAddr(src, dst, timeout); err == nil {
				id.mu.Lock()
				others := id.narrow(l)
				id.mu.Unlock()
				_ = closeLegs(others) // nothing depends on them any more
				return nil
			}
			// Another driver cannot help against an address that is in use.
			if !cannotServe(err) {
				return &DriverError{Driver: l.driver, Err: err}
			}
		}
		errs = append(errs, &DriverError{Driver: c.driver.Name(), Err: err})
	}
	return &NoDriverError{Op: "resolve", Device: id.opts.Device, Addr: dst, Drivers: errs}
}

// legFor is the ID's leg with the candidate: a new one, or if the ID is bound the
// one it has.
func (id *ID) legFor(c candidate, bound bool) (*leg, error) {
	if bound {
		id.mu.Lock()
		defer id.mu.Unlock()
		for _, l := range id.legs {
			if l.driver == c.driver.Name() {
				return l, nil
			}
		}
		return nil, fmt.Errorf("the id is not bound on this driver: %w", verbs.ErrNoRoute)
	}
	l, err := id.newLeg(c.driver, id.opts.Device)
	if err != nil {
		return nil, err
	}
	l.device = c.route.Device
	if err := id.adopt([]*leg{l}, StateAddrResolving, StateAddrResolving); err != nil {
		return nil, errors.Join(err, l.id.Close())
	}
	return l, nil
}

// narrow makes l the ID's only leg, now that its address leads there, and returns the
// others. id.mu is held.
func (id *ID) narrow(l *leg) (others []*leg) {
	for _, o := range id.legs {
		if o != l {
			others = append(others, o)
		}
	}
	if len(others) > 0 {
		id.legs = []*leg{l}
	}
	return others
}

func (id *ID) setDst(dst netip.AddrPort) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.dst = dst
}

// ResolveRoute finds the path to the resolved address (rdma_resolve_route).
// RouteResolved or RouteError follows within timeout; 0 means DefaultResolveTimeout.
func (id *ID) ResolveRoute(timeout time.Duration) error {
	return id.call("resolve a route", StateRouteResolving, []State{StateAddrResolved}, func(l *leg) error {
		return l.id.ResolveRoute(orDefault(timeout))
	})
}

// Connect asks the peer (rdma_connect). Established, Rejected, Unreachable or
// ConnectError follows; on an ID without a QP ConnectResponse in place of
// Established. timeout 0 leaves the wait to the transport's own bound. A nil param
// stands for the driver's defaults. Private data is at most MaxConnectPrivateData
// bytes.
func (id *ID) Connect(param *ConnParam, timeout time.Duration) error {
	if err := checkParam("connect", param, MaxConnectPrivateData); err != nil {
		return err
	}
	return id.call("connect", StateConnecting, []State{StateRouteResolved}, func(l *leg) error {
		return l.id.Connect((*driver.ConnParam)(param), timeout)
	})
}

// Accept answers a ConnectRequest, or a ConnectResponse (rdma_accept). Established
// or ConnectError follows. Data may arrive before Established: post receives before
// the call. A nil param repeats what the peer asked for. Private data is at most
// MaxAcceptPrivateData bytes.
func (id *ID) Accept(param *ConnParam) error {
	if err := checkParam("accept", param, MaxAcceptPrivateData); err != nil {
		return err
	}
	return id.call("accept", StateAccepted, []State{StateRequest, StateResponded}, func(l *leg) error {
		return l.id.Accept((*driver.ConnParam)(param))
	})
}

// Reject refuses a ConnectRequest, or a ConnectResponse (rdma_reject). The peer
// gets Rejected with the private data, at most MaxRejectPrivateData bytes. The ID
// still has to be closed.
func (id *ID) Reject(privateData []byte) error {
	if len(privateData) > MaxRejectPrivateData {
		return tooMuch("reject", len(privateData), MaxRejectPrivateData)
	}
	return id.call("reject", StateDisconnected, []State{StateRequest, StateResponded}, func(l *leg) error {
		return l.id.Reject(privateData)
	})
}

// Withdraw gives up an ID that was accepted and is not Established, and reports whether it
// did; the ID still has to be closed. False means that the peer has confirmed: Established
// was delivered or is about to be. On the software device the two ends decide that in one
// place, and a peer that was given up learns it (verbs.ErrTryAgain). Elsewhere a confirmation may
// be on its way, and the peer sees the end of a connection.
func (id *ID) Withdraw() bool {
	if id.State() == StateConnected {
		return false
	}
	if l := id.only(); l != nil {
		if w, ok := l.id.(driver.Withdrawer); ok {
			return w.Withdraw()
		}
	}
	return true
}

// PeerGone reports whether the peer of an ID that is Established, or its process, is known to have gone, perhaps
// before an event says so. It does not wait. Only the software device can tell: elsewhere it reports false.
func (id *ID) PeerGone() bool {
	if l := id.only(); l != nil {
		if c, ok := l.id.(driver.PeerChecker); ok {
			return c.PeerGone()
		}
	}
	return false
}

// Notify records that data has arrived on the QP of an ID that has answered a request. The
// message with which the peer confirms the connection may have been lost: data proves as
// much, and Established follows (rdma_notify). It may be called at any time after Accept,
// and does nothing where the ID is connected, or its messages cannot be lost.
func (id *ID) Notify() error {
	id.mu.Lock()
	switch id.state {
	case StateAccepted:
	case StateConnected:
		id.mu.Unlock()
		return nil
	default:
		defer id.mu.Unlock()
		return id.stateError("notify")
	}
	l := id.legs[0]
	id.mu.Unlock()
	if n, ok := l.id.(driver.Notifier); ok {
		if err := n.Notify(); err != nil {
			return &DriverError{Driver: l.driver, Err: err}
		}
	}
	return nil
}

// Disconnect ends the connection (rdma_disconnect): the QP goes to ERR, what is
// queued is flushed, and both ends see Disconnected. On an ID that is disconnected
// already it does nothing.
func (id *ID) Disconnect() error {
	id.mu.Lock()
	switch id.state {
	case StateConnected, StateAccepted:
	case StateDisconnected:
		id.mu.Unlock()
		return nil
	default:
		defer id.mu.Unlock()
		return id.stateError("disconnect")
	}
	l := id.legs[0]
	id.mu.Unlock()
	return l.id.Disconnect()
}

// call runs f, which makes the driver begin something, in the state during. If it
// fails the ID returns to where it was.
func (id *ID) call(op string, during State, from []State, f func(*leg) error) error {
	was, err := id.enter(op, during, from...)
	if err != nil {
		return err
	}
	l := id.only()
	if l == nil { // closed since
		return &StateError{Op: op, State: StateClosed}
	}
	if err := f(l); err != nil {
		id.leave(during, was)
		return &DriverError{Driver: l.driver, Err: err}
	}
	return nil
}

func checkParam(op string, param *ConnParam, most int) error {
	if param == nil {
		return nil
	}
	if len(param.PrivateData) > most {
		return tooMuch(op, len(param.PrivateData), most)
	}
	if param.RetryCount > 7 || param.RNRRetryCount > 7 {
		return fmt.Errorf("cm: %s: RetryCount %d and RNRRetryCount %d must be 0 to 7: %w", op, param.RetryCount, param.RNRRetryCount, verbs.ErrInvalid)
	}
	return nil
}

func tooMuch(op string, n, most int) error {
	return fmt.Errorf("cm: %s: %d bytes of private data, at most %d are possible: %w", op, n, most, verbs.ErrInvalid)
}

func orDefault(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return DefaultResolveTimeout
	}
	return timeout
}
