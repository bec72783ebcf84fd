package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// bindTries bounds how often BindAddr lets the first driver choose a port that
// then turns out to be taken on another.
const bindTries = 16

// BindAddr binds the ID to a local address; port 0 chooses one (rdma_bind_addr).
// Without Options.Device it does so on every driver that serves the address, with
// one port number on all of them. Drivers that do not serve it, as for a missing
// library, are left out; if none does the error is a *NoDriverError. Otherwise errors
// are those of bind(2): EADDRINUSE, EADDRNOTAVAIL, EACCES.
func (id *ID) BindAddr(addr netip.AddrPort) error {
	if !addr.Addr().IsValid() {
		return fmt.Errorf("cm: bind: no address given; for all addresses use 0.0.0.0 or ::: %w", verbs.ErrInvalid)
	}
	if _, err := id.enter("bind", StateBinding, StateIdle); err != nil {
		return err
	}
	legs, err := id.bindLegs(addr)
	if err != nil {
		id.leave(StateBinding, StateIdle)
		return err
	}
	if err := id.adopt(legs, StateBinding, StateBound); err != nil {
		return errors.Join(err, closeLegs(legs))
	}
	return nil
}

// adopt gives the ID its legs and takes it to its next state. Legs that are
// replaced, as those of a failed ResolveAddr, are closed. It fails if the ID was
// closed meanwhile.
func (id *ID) adopt(legs []*leg, from, to State) error {
	id.mu.Lock()
	if id.state != from {
		defer id.mu.Unlock()
		return id.stateError("go on")
	}
	old := id.legs
	id.legs = legs
	id.state = to
	id.bound = id.bound || to == StateBound
	id.mu.Unlock()
	_ = closeLegs(old) // nothing depends on them any more
	return nil
}

func (id *ID) bindLegs(addr netip.AddrPort) ([]*leg, error) {
	var err error
	for range bindTries {
		var legs []*leg
		if legs, err = id.tryBind(addr); err == nil {
			return legs, nil
		}
		if addr.Port() != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
	return nil, driver.Explain(fmt.Sprintf("found no port that is free on every device in %d tries (name a port, or one device)", bindTries), err)
}

// tryBind binds once on every driver that serves addr.
func (id *ID) tryBind(addr netip.AddrPort) (legs []*leg, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeLegs(legs))
			legs = nil
		}
	}()
	failed := &NoDriverError{Op: "bind", Device: id.opts.Device, Addr: addr}
	for _, d := range id.drivers() {
		l, err := id.newLeg(d, id.opts.Device)
		if err == nil {
			err = l.id.BindAddr(addr)
			if err == nil {
				legs = append(legs, l)
				// The others get the port that the first has chosen.
				addr = netip.AddrPortFrom(addr.Addr(), l.id.LocalAddr().Port())
				continue
			}
			closeErr := l.id.Close()
			if !cannotServe(err) && !id.takenByAnother(l, err) {
				return legs, errors.Join(&DriverError{Driver: d.Name(), Err: err}, closeErr)
			}
		}
		failed.Drivers = append(failed.Drivers, &DriverError{Driver: d.Name(), Err: err})
	}
	if len(legs) == 0 {
		return nil, failed
	}
	id.noteLeftOut(failed.Drivers)
	return legs, nil
}

func (id *ID) noteLeftOut(failed []*DriverError) {
	var left []error
	for _, err := range failed {
		if errors.Is(err, verbs.ErrTCPPorts) {
			left = append(left, err)
		}
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.leftOut = errors.Join(left...)
}

// LeftOut says which drivers Options.ApartFromTCP has kept from serving a bound ID, while
// others serve it: nil if none, otherwise *DriverErrors of verbs.ErrTCPPorts.
func (id *ID) LeftOut() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.leftOut
}

// Listen starts listening on the bound address (rdma_listen). ConnectRequest
// events follow; at most backlog requests wait unanswered on each device, further
// ones wait at the dialer. If it fails the ID is as if it had not been bound.
func (id *ID) Listen(backlog int) error {
	if backlog <= 0 {
		return fmt.Errorf("cm: listen: backlog %d is not positive: %w", backlog, verbs.ErrInvalid)
	}
	if _, err := id.enter("listen", StateListening, StateBound); err != nil {
		return err
	}
	id.mu.Lock()
	legs := id.legs
	id.mu.Unlock()

	var listening, failed []*leg
	refused := &NoDriverError{Op: "listen", Device: id.opts.Device, Addr: id.LocalAddr()}
	var hard error
	for _, l := range legs {
		err := l.id.Listen(backlog)
		if err == nil {
			listening = append(listening, l)
			continue
		}
		failed = append(failed, l)
		refused.Drivers = append(refused.Drivers, &DriverError{Driver: l.driver, Err: err})
		if !cannotServe(err) {
			hard = refused.Drivers[len(refused.Drivers)-1]
			break
		}
	}
	if hard == nil && len(listening) > 0 {
		id.keep(listening)
		_ = closeLegs(failed) // nothing depends on them any more, and an error would say that nobody listens
		return nil
	}
	err := hard
	if err == nil {
		err = refused
	}
	return errors.Join(err, id.unbind(), closeLegs(legs))
}

// keep makes legs the only ones of an ID that is not closed.
func (id *ID) keep(legs []*leg) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != StateClosed {
		id.legs = legs
	}
}

// unbind takes an ID that could not listen back to the start, and drops what one
// of its legs may have been asked before another failed.
func (id *ID) unbind() error {
	id.mu.Lock()
	if id.state != StateListening {
		id.mu.Unlock()
		return nil
	}
	id.state, id.bound, id.legs = StateIdle, false, nil
	dropped := id.ec.take(id)
	id.mu.Unlock()
	var errs []error
	for _, ev := range dropped {
		errs = append(errs, discard(ev))
	}
	return errors.Join(errs...)
}

// takenByAnother reports whether a bind failed on a device whose addresses cannot be shared
// because somebody has the address who may share it on the others.
func (id *ID) takenByAnother(l *leg, err error) bool {
	_, shares := l.id.(driver.ListenSharer)
	return id.opts.ReusePort && !shares && errors.Is(err, syscall.EADDRINUSE)
}

// SetCompanion gives a bound ID a file that goes, with Options.ReusePort, to whoever
// comes to share its address; the ID closes it. It fails with verbs.ErrNotSupported if no
// device of the ID can share.
func (id *ID) SetCompanion(f *os.File) error {
	if s := id.sharer(); s != nil {
		return s.SetCompanion(f)
	}
	return errors.Join(fmt.Errorf("cm: no device of the id can share its address: %w", verbs.ErrNotSupported), f.Close())
}

// Companion returns the file that came with the address of a bound ID, which the caller
// must close, or nil.
func (id *ID) Companion() *os.File {
	if s := id.sharer(); s != nil {
		return s.Companion()
	}
	return nil
}

func (id *ID) sharer() driver.ListenSharer {
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, l := range id.legs {
		if s, ok := l.id.(driver.ListenSharer); ok {
			return s
		}
	}
	return nil
}

// Hold has a listening ID take in no further clients, until it is called with false:
// for a listener that cannot serve those it has for lack of descriptors or memory. On
// devices that can, they wait where they cost this process nothing; elsewhere requests go
// on to arrive. Each call with true also gives up something that takes descriptors and that
// nobody misses, if there is any. It may be called at any time.
func (id *ID) Hold(hold bool) {
	id.mu.Lock()
	legs := id.legs
	id.mu.Unlock()
	for _, l := range legs {
		if h, ok := l.id.(driver.ListenHolder); ok {
			h.Hold(hold)
		}
	}
}

// Waits reports whether the client of a ConnectRequest that was not answered still waits,
// as far as the device knows without asking it.
func (id *ID) Waits() bool {
	if l := id.only(); l != nil {
		if h, ok := l.id.(driver.ListenHolder); ok {
			return h.Waits()
		}
	}
	return true
}

// HoldsDescriptor reports whether the ID of a ConnectRequest that was not answered holds a
// descriptor of this process. On kernel devices it does not.
func (id *ID) HoldsDescriptor() bool {
	l := id.only()
	if l == nil {
		return false
	}
	_, holds := l.id.(driver.ListenHolder)
	return holds
}

// OnLeave has left called, once, when the client of a ConnectRequest leaves before it was
// answered, on devices that do not tell so by an event; it must not block. stop ends that,
// and must be called before the ID is used otherwise, but for Close.
func (id *ID) OnLeave(left func()) (stop func()) {
	if l := id.only(); l != nil {
		if h, ok := l.id.(driver.ListenHolder); ok {
			return h.OnLeave(left)
		}
	}
	return func() {}
}

// newLeg makes a CMID with the ID's options.
func (id *ID) newLeg(d driver.Driver, device string) (*leg, error) {
	l := &leg{driver: d.Name(), device: device}
	cmid, err := d.CreateID(device, func(ev driver.CMEvent) { id.sink(l, ev) })
	if err != nil {
		return nil, err
	}
	l.id = cmid
	if err := cmid.SetOptions(id.opts.driver()); err != nil {
		return nil, errors.Join(err, cmid.Close())
	}
	return l, nil
}
