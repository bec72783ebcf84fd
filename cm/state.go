package cm

// State is where an ID stands in its life.
type State uint8

// The states. The ones ending in "ing" last until an event or the end of a call.
const (
	StateIdle           State = iota // idle
	StateBinding                     // binding
	StateBound                       // bound
	StateListening                   // listening
	StateAddrResolving               // resolving its address
	StateAddrResolved                // address resolved
	StateRouteResolving              // resolving its route
	StateRouteResolved               // route resolved
	StateConnecting                  // connecting
	StateResponded                   // waiting for accept after the peer's response
	StateRequest                     // a connection request
	StateAccepted                    // accepted
	StateConnected                   // connected
	StateDisconnected                // disconnected
	StateClosed                      // closed
)

var stateNames = [...]string{
	StateIdle:           "idle",
	StateBinding:        "binding",
	StateBound:          "bound",
	StateListening:      "listening",
	StateAddrResolving:  "resolving its address",
	StateAddrResolved:   "address resolved",
	StateRouteResolving: "resolving its route",
	StateRouteResolved:  "route resolved",
	StateConnecting:     "connecting",
	StateResponded:      "waiting for accept after the peer's response",
	StateRequest:        "a connection request",
	StateAccepted:       "accepted",
	StateConnected:      "connected",
	StateDisconnected:   "disconnected",
	StateClosed:         "closed",
}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "State(?)"
}

// after is the state that an event leads to. An event that does not belong to s
// leaves it alone: what the driver says is passed on, but it cannot bring an ID
// back from Disconnected or Closed.
func (s State) after(ev EventType, bound bool) State {
	switch ev {
	case AddrResolved:
		if s == StateAddrResolving {
			return StateAddrResolved
		}
	case AddrError:
		if s == StateAddrResolving {
			if bound {
				return StateBound
			}
			return StateIdle
		}
	case RouteResolved:
		if s == StateRouteResolving {
			return StateRouteResolved
		}
	case RouteError:
		if s == StateRouteResolving {
			return StateAddrResolved
		}
	case ConnectResponse:
		if s == StateConnecting {
			return StateResponded
		}
	case Established:
		if s == StateConnecting || s == StateAccepted {
			return StateConnected
		}
	case ConnectError, Unreachable, Rejected, Disconnected:
		switch s {
		case StateConnecting, StateResponded, StateRequest, StateAccepted, StateConnected:
			return StateDisconnected
		}
	case DeviceRemoval:
		// The other devices of a listening ID go on, as long as it has one.
		if s != StateListening && s != StateClosed {
			return StateDisconnected
		}
	}
	return s
}
