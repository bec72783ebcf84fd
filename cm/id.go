package cm

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// An ID is a communication identifier: to RDMA what a socket is to TCP
// (rdma_cm_id). A call that the ID's state forbids fails with a *StateError.
// Methods may be called concurrently.
type ID struct {
	opts    Options
	drivers func() []driver.Driver

	// mu is never held while a driver or a handler is called, for both may wait
	// for each other: a state such as StateBinding keeps others out meanwhile.
	// Order: a listening ID, the IDs of its requests, their channel.
	mu    sync.Mutex
	ec    *EventChannel
	state State
	bound bool // BindAddr has succeeded
	// delivering reports that some goroutine hands over what is pending, and holds back
	// events of a request until its ConnectRequest was handed over.
	delivering bool
	cause      error // the failure that led to StateDisconnected
	legs       []*leg
	leftOut    error          // the drivers that Options.ApartFromTCP has left out
	dst        netip.AddrPort // where ResolveAddr was told to go; the peer once closed
	src        netip.AddrPort // the local address once closed

	pending []*Event // for a handler
	// resolving is the channel that Resolve waits on, if it does.
	resolving *EventChannel
}

// leg is the part of an ID that one driver serves. A listening ID has as many as
// there are drivers that serve its address; any other ID comes down to one.
type leg struct {
	driver string
	device string // as the driver's route named it, "" if unknown
	id     driver.CMID
	lost   bool // its device was removed; guarded by the ID's mu
}

// State returns where the ID stands. Another goroutine or an event may change it
// at any time.
func (id *ID) State() State {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.state
}

// Verbs is the opened device that the ID is bound to, nil before it is resolved
// and for a listening ID on several devices. It is shared and must not be closed.
func (id *ID) Verbs() verbs.Context {
	if l := id.only(); l != nil {
		return l.id.Verbs()
	}
	return nil
}

// Device is the name of the device that the ID is bound to, "" where Verbs is nil.
func (id *ID) Device() string {
	l := id.only()
	if l == nil {
		return ""
	}
	if ctx := l.id.Verbs(); ctx != nil {
		return ctx.Device().Name()
	}
	return l.device
}

// LocalAddr is the address the ID is bound to, the zero value before that. It
// stays after Close.
func (id *ID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	legs, src := id.legs, id.src
	id.mu.Unlock()
	if len(legs) == 0 {
		return src
	}
	return legs[0].id.LocalAddr()
}

// RemoteAddr is the address of the peer, the zero value before it is known. It
// stays after Close.
func (id *ID) RemoteAddr() netip.AddrPort {
	if l := id.only(); l != nil {
		if a := l.id.RemoteAddr(); a.IsValid() {
			return a
		}
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.dst
}

// ListenStats returns the counts of a listening ID, summed over its devices. After Close they are all
// zero: who needs them asks before.
func (id *ID) ListenStats() ListenStats {
	id.mu.Lock()
	legs := id.legs
	id.mu.Unlock()
	var sum ListenStats
	for _, l := range legs {
		s := l.id.ListenStats()
		sum.Requests += s.Requests
		sum.HalfOpen += s.HalfOpen
		sum.Evicted += s.Evicted
		sum.TimedOut += s.TimedOut
		sum.Malformed += s.Malformed
		sum.Denied += s.Denied
		sum.Hangup += s.Hangup
	}
	return sum
}

// CreateQP makes an RC QP on the ID, in INIT, ready for receives; Connect and
// Accept take it to RTS (rdma_create_qp). The caller closes it before the ID. pd
// must come from Verbs.
func (id *ID) CreateQP(pd verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) {
	id.mu.Lock()
	switch id.state {
	case StateBound, StateAddrResolved, StateRouteResolving, StateRouteResolved, StateRequest, StateResponded:
	default:
		defer id.mu.Unlock()
		return nil, id.stateError("create a QP")
	}
	legs := id.legs
	id.mu.Unlock()
	if len(legs) != 1 {
		return nil, errManyDevices
	}
	return legs[0].id.CreateQP(pd, attr)
}

// Close destroys the ID (rdma_destroy_id); a connected one is disconnected first,
// and a request that was not answered is refused. What is queued for the ID is
// dropped, together with requests that nobody has taken. No event is delivered
// after Close returns, except that a handler which is running already may outlast
// it. Closing again does nothing.
func (id *ID) Close() error {
	src, dst := id.LocalAddr(), id.RemoteAddr()
	id.mu.Lock()
	if id.state == StateClosed {
		id.mu.Unlock()
		return nil
	}
	id.state, id.src, id.dst = StateClosed, src, dst
	legs := id.legs
	id.legs = nil
	dropped := append(id.ec.take(id), id.pending...)
	id.pending = nil
	if id.resolving != nil {
		dropped = append(dropped, id.resolving.drain()...)
	}
	id.mu.Unlock()

	err := closeLegs(legs)
	for _, ev := range dropped {
		err = errors.Join(err, discard(ev))
	}
	return err
}

// only returns the leg of an ID that has exactly one.
func (id *ID) only() *leg {
	id.mu.Lock()
	defer id.mu.Unlock()
	if len(id.legs) != 1 {
		return nil
	}
	return id.legs[0]
}

// enter checks that the ID is in one of the states from, moves it to to, and
// returns where it was.
func (id *ID) enter(op string, to State, from ...State) (State, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !slices.Contains(from, id.state) {
		return id.state, id.stateError(op)
	}
	was := id.state
	id.state = to
	return was, nil
}

// leave takes the ID from one state to another unless an event or Close has taken
// it elsewhere meanwhile.
func (id *ID) leave(from, to State) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == from {
		id.state = to
	}
}

// stateError returns why op is not possible now. id.mu is held.
func (id *ID) stateError(op string) error {
	return &StateError{Op: op, State: id.state, Err: id.cause}
}

func closeLegs(legs []*leg) error {
	var errs []error
	for _, l := range legs {
		errs = append(errs, l.id.Close())
	}
	return errors.Join(errs...)
}
