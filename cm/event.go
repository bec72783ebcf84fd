package cm

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// EventType is the kind of an Event (rdma_cm_event_type).
type EventType = verbs.CMEventType

// The sixteen events, as rdma_get_cm_event(3) describes them.
const (
	AddrResolved    = verbs.CMAddrResolved    // the device and local address for the destination are known
	AddrError       = verbs.CMAddrError       // the address could not be resolved
	RouteResolved   = verbs.CMRouteResolved   // the path to the destination is known
	RouteError      = verbs.CMRouteError      // the route could not be resolved
	ConnectRequest  = verbs.CMConnectRequest  // somebody asks to connect; Event.ID is new
	ConnectResponse = verbs.CMConnectResponse // the peer accepts; seen by an ID without a QP, or with AskToConfirm, which must Accept
	ConnectError    = verbs.CMConnectError    // connecting failed half-way
	Unreachable     = verbs.CMUnreachable     // the peer does not answer
	Rejected        = verbs.CMRejected        // the peer refuses
	Established     = verbs.CMEstablished     // the connection is up
	Disconnected    = verbs.CMDisconnected    // the connection has ended
	DeviceRemoval   = verbs.CMDeviceRemoval   // the device has gone; unless it listens on others, the ID must be closed
	MulticastJoin   = verbs.CMMulticastJoin   // a multicast group was joined
	MulticastError  = verbs.CMMulticastError  // joining a group failed, or the group has gone
	AddrChange      = verbs.CMAddrChange      // the local address moved to another device
	TimewaitExit    = verbs.CMTimewaitExit    // the QP number may be used again; need not come
)

// An Event is what became of an ID. Its memory belongs to the receiver; nothing
// needs to be acknowledged.
type Event struct {
	Type EventType
	// ID is the ID the event is for; for ConnectRequest a new one, which the
	// receiver must Accept or Reject, and Close.
	ID *ID
	// ListenID is the listening ID of a ConnectRequest, nil otherwise.
	ListenID *ID
	// Err is not nil if the event reports a failure, and says why: *ResolveError
	// for AddrError and RouteError, *RejectedError, *UnreachableError,
	// *DeviceRemovedError, and *ConnectionError for ConnectError, MulticastError
	// and for a Disconnected that was not orderly.
	Err error
	// Param holds what the peer sent, with ConnectRequest, ConnectResponse,
	// Established and Rejected. PrivateData may be padded with zeros.
	Param ConnParam
}

func (e *Event) String() string {
	if e.Err != nil {
		return fmt.Sprintf("%s (%v)", e.Type, e.Err)
	}
	return e.Type.String()
}

// eventError gives a driver's event the error that Event.Err documents.
func eventError(id *ID, ev *verbs.CMEvent) error {
	switch ev.Type {
	case AddrError:
		return &ResolveError{What: "address", Addr: id.RemoteAddr(), Err: orUnknown(ev.Err)}
	case RouteError:
		return &ResolveError{What: "route", Addr: id.RemoteAddr(), Err: orUnknown(ev.Err)}
	case Rejected:
		return &RejectedError{Addr: id.RemoteAddr(), Reason: ev.Reason, PrivateData: ev.Param.PrivateData, Err: ev.Err}
	case Unreachable:
		return &UnreachableError{Addr: id.RemoteAddr(), Err: ev.Err}
	case ConnectError, MulticastError:
		return &ConnectionError{Addr: id.RemoteAddr(), Err: ev.Err}
	case DeviceRemoval:
		return &DeviceRemovedError{Device: id.Device(), Err: ev.Err}
	case Disconnected:
		if ev.Err != nil {
			return &ConnectionError{Addr: id.RemoteAddr(), Err: ev.Err}
		}
	}
	return nil
}

func orUnknown(err error) error {
	if err == nil {
		return ErrNoRoute
	}
	return err
}
