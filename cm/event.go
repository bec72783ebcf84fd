package cm

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// EventType is the kind of an Event (rdma_cm_event_type).
type EventType uint8

// The sixteen events, numbered as in rdma_cm_event_type and described as in rdma_get_cm_event(3).
const (
	AddrResolved    EventType = iota // the device and local address for the destination are known
	AddrError                        // the address could not be resolved
	RouteResolved                    // the path to the destination is known
	RouteError                       // the route could not be resolved
	ConnectRequest                   // somebody asks to connect; Event.ID is new
	ConnectResponse                  // the peer accepts; seen by an ID without a QP, or with AskToConfirm, which must Accept
	ConnectError                     // connecting failed half-way
	Unreachable                      // the peer does not answer
	Rejected                         // the peer refuses
	Established                      // the connection is up
	Disconnected                     // the connection has ended
	DeviceRemoval                    // the device has gone; unless it listens on others, the ID must be closed
	MulticastJoin                    // a multicast group was joined
	MulticastError                   // joining a group failed, or the group has gone
	AddrChange                       // the local address moved to another device
	TimewaitExit                     // the QP number may be used again; need not come
)

func (t EventType) String() string {
	if t > TimewaitExit {
		return fmt.Sprintf("EventType(%d)", uint8(t))
	}
	return driver.CMEventType(t).String()
}

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
func eventError(id *ID, ev *driver.CMEvent) error {
	switch EventType(ev.Type) {
	case AddrError:
		return &ResolveError{What: "address", Addr: id.RemoteAddr(), Err: orUnknown(ev.Err)}
	case RouteError:
		return &ResolveError{What: "route", Addr: id.RemoteAddr(), Err: orUnknown(ev.Err)}
	case Rejected:
		return &RejectedError{Addr: id.RemoteAddr(), Reason: RejectReason(ev.Reason), PrivateData: ev.Param.PrivateData, Err: ev.Err}
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
		return verbs.ErrNoRoute
	}
	return err
}
