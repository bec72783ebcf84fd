package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Causes that callers branch on with errors.Is, beside those of package verbs. Where a TCP socket
// would fail with an errno of bind(2) or connect(2), that errno is in the chain as well.
var (
	// ErrRejected means that the peer, or its host, refused the connection. See RejectedError.
	ErrRejected = errors.New("connection rejected")
	// ErrUnreachable means that the peer did not answer. See UnreachableError.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrDeviceRemoved means that the device of an ID went away. See DeviceRemovedError.
	ErrDeviceRemoved = errors.New("RDMA device removed")
)

// A StateError means that the state of an ID forbids a call.
type StateError struct {
	Op    string // the call: "connect"
	State State  // the state the ID is in
	Err   error  // what brought it there, if that was a failure
}

func (e *StateError) Error() string {
	s := fmt.Sprintf("cm: cannot %s while the id is %s", e.Op, e.State)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns verbs.ErrState, or verbs.ErrClosed for a closed ID, and the cause.
func (e *StateError) Unwrap() []error {
	kind := verbs.ErrState
	if e.State == StateClosed {
		kind = verbs.ErrClosed
	}
	if e.Err == nil {
		return []error{kind}
	}
	return []error{kind, e.Err}
}

// A DriverError is what one driver said.
type DriverError struct {
	Driver string
	Err    error
}

func (e *DriverError) Error() string { return e.Driver + ": " + e.Err.Error() }

// Detail returns what the driver said.
func (e *DriverError) Detail() string { return detail(e.Err) }

// Unwrap returns the driver's own error.
func (e *DriverError) Unwrap() error { return e.Err }

// A NoDriverError means that no driver serves an address, and what each of them said.
type NoDriverError struct {
	Op      string         // "bind", "listen" or "resolve"
	Device  string         // the device that was asked for, "" if any would do
	Addr    netip.AddrPort // the address that was to be served or reached
	Drivers []*DriverError // in the order the drivers were asked
}

func (e *NoDriverError) Error() string {
	s := fmt.Sprintf("cm: cannot %s %s", e.Op, e.Addr)
	if e.Device != "" {
		s += fmt.Sprintf(" on device %q", e.Device)
	}
	return s + ": " + e.Detail()
}

// Detail returns what the drivers said, each behind its name, and the device if the environment
// names it, since who reads that may not know.
func (e *NoDriverError) Detail() string {
	if len(e.Drivers) == 0 {
		return "this program has no RDMA driver"
	}
	said := make([]string, len(e.Drivers))
	for i, d := range e.Drivers {
		said[i] = d.Driver + ": " + d.Detail()
	}
	s := strings.Join(said, "; ")
	if e.Device != "" && e.Device == DefaultDevice() {
		s += " (" + deviceVar + "=" + e.Device + ")"
	}
	return s
}

// Unwrap returns what the drivers said; verbs.ErrNoDevice if there is no driver.
func (e *NoDriverError) Unwrap() []error {
	if len(e.Drivers) == 0 {
		return []error{verbs.ErrNoDevice}
	}
	errs := make([]error, len(e.Drivers))
	for i, d := range e.Drivers {
		errs[i] = d
	}
	return errs
}

// A ResolveError is the Err of AddrError and RouteError events.
type ResolveError struct {
	What string         // "address" or "route"
	Addr netip.AddrPort // where the ID wanted to go
	Err  error
}

func (e *ResolveError) Error() string {
	return fmt.Sprintf("cm: resolving the %s of %s: %s", e.What, e.Addr, e.Detail())
}

// Detail returns the text of the cause.
func (e *ResolveError) Detail() string { return detail(e.Err) }

// Unwrap returns the cause.
func (e *ResolveError) Unwrap() error { return e.Err }

// A RejectedError is the Err of Rejected events.
type RejectedError struct {
	Addr   netip.AddrPort // who was asked
	Reason RejectReason
	// PrivateData is what the peer's application sent along, perhaps padded with zeros.
	PrivateData []byte
	Err         error // what the driver said beyond the reason, or nil
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("cm: connection to %s rejected: %s", e.Addr, e.Detail())
}

// Detail returns what the peer's application said, or else what the driver did, or the reason.
func (e *RejectedError) Detail() string {
	if r := e.Refusal(); r != nil {
		return r.Error()
	}
	if e.Err != nil {
		return detail(e.Err)
	}
	return e.Reason.String()
}

// Refusal returns the refusal in the private data, or nil if there is none.
func (e *RejectedError) Refusal() *RefusedError {
	if e.Reason != RejectConsumer {
		return nil
	}
	r, err := ParseRefusal(e.PrivateData)
	if err != nil {
		return nil
	}
	return &RefusedError{Refusal: r}
}

// Is matches ErrRejected and what connect(2) fails with: ETIMEDOUT if the reason
// is a timeout, ECONNREFUSED otherwise.
func (e *RejectedError) Is(target error) bool {
	switch target {
	case ErrRejected:
		return true
	case syscall.ETIMEDOUT:
		return e.Reason == RejectTimeout
	case syscall.ECONNREFUSED:
		return e.Reason != RejectTimeout
	}
	return false
}

// Timeout reports whether the connection was rejected for a timeout.
func (e *RejectedError) Timeout() bool { return e.Reason == RejectTimeout }

// Unwrap returns the peer's refusal as a *RefusedError, and the driver's error.
func (e *RejectedError) Unwrap() []error {
	var errs []error
	if r := e.Refusal(); r != nil {
		errs = append(errs, r)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// An UnreachableError is the Err of Unreachable events: the peer did not answer.
type UnreachableError struct {
	Addr netip.AddrPort
	Err  error // may be nil
}

func (e *UnreachableError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("cm: %s is unreachable", e.Addr)
	}
	return fmt.Sprintf("cm: %s is unreachable: %s", e.Addr, e.Detail())
}

// Detail returns the text of the cause.
func (e *UnreachableError) Detail() string {
	if e.Err == nil {
		return ErrUnreachable.Error()
	}
	return detail(e.Err)
}

// Is matches ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// Timeout reports whether the cause was a timeout.
func (e *UnreachableError) Timeout() bool { return isTimeout(e.Err) }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// A ConnectionError is the Err of ConnectError events, and of Disconnected events
// if the connection did not end orderly.
type ConnectionError struct {
	Addr netip.AddrPort // the peer
	Err  error          // may be nil
}

func (e *ConnectionError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("cm: connection with %s failed", e.Addr)
	}
	return fmt.Sprintf("cm: connection with %s failed: %s", e.Addr, e.Detail())
}

// Detail returns the text of the cause.
func (e *ConnectionError) Detail() string {
	if e.Err == nil {
		return "the connection failed"
	}
	return detail(e.Err)
}

// Timeout reports whether the cause was a timeout.
func (e *ConnectionError) Timeout() bool { return isTimeout(e.Err) }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// A DeviceRemovedError is the Err of DeviceRemoval events.
type DeviceRemovedError struct {
	Device string
	Err    error // may be nil
}

func (e *DeviceRemovedError) Error() string {
	return "cm: " + e.Detail()
}

// Detail returns Error without the name of the package.
func (e *DeviceRemovedError) Detail() string {
	s := fmt.Sprintf("device %q was removed", e.Device)
	if e.Err != nil {
		s += ": " + detail(e.Err)
	}
	return s
}

// Is matches ErrDeviceRemoved.
func (e *DeviceRemovedError) Is(target error) bool { return target == ErrDeviceRemoved }

// Unwrap returns the cause.
func (e *DeviceRemovedError) Unwrap() error { return e.Err }

// detail is the text of err without what whoever shows it says already: the name of this package,
// and the address. Errors that have it in their text give the rest by a method Detail.
func detail(err error) string {
	if d, ok := err.(interface{ Detail() string }); ok {
		return d.Detail()
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// Errors without detail.
var (
	errChannelClosed = fmt.Errorf("cm: event channel closed: %w", verbs.ErrClosed)
	errHasHandler    = fmt.Errorf("cm: GetEvent on an event channel with a handler: %w", verbs.ErrInvalid)
	errManyDevices   = fmt.Errorf("cm: the id is bound on several devices; resolve it first, or name one in Options.Device: %w", verbs.ErrState)
)

// A MalformedError says what is wrong with a refusal or the address of a QP. It is a verbs.ErrProtocol.
type MalformedError struct {
	What   string // "refusal" or "QP address"
	Detail string
}

func (e *MalformedError) Error() string { return "cm: malformed " + e.What + ": " + e.Detail }

// Is matches verbs.ErrProtocol.
func (e *MalformedError) Is(target error) bool { return target == verbs.ErrProtocol }
