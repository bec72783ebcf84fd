package cm

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

var allEvents = func() (all []EventType) {
	for t := AddrResolved; t <= TimewaitExit; t++ {
		all = append(all, t)
	}
	return all
}()

func TestSixteenEvents(t *testing.T) {
	names := []string{
		"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
		"CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
		"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
	}
	require.Len(t, allEvents, 16)
	for i, ev := range allEvents {
		require.Equal(t, names[i], ev.String())
	}
}

// Each event, where it belongs, is passed on with its id, its typed error, and the
// state it leads to.
func TestEvents(t *testing.T) {
	boom := errors.New("boom")
	// as reports that the error is of type E.
	for _, c := range []struct {
		ev    EventType
		from  State
		to    State
		check func(t *testing.T, err error)
	}{
		{AddrResolved, StateAddrResolving, StateAddrResolved, isNil},
		{AddrError, StateAddrResolving, StateIdle, as[*ResolveError]("cm: resolving the address of 127.0.0.1:4000: boom")},
		{RouteResolved, StateRouteResolving, StateRouteResolved, isNil},
		{RouteError, StateRouteResolving, StateAddrResolved, as[*ResolveError]("cm: resolving the route of 127.0.0.1:4000: boom")},
		{ConnectResponse, StateConnecting, StateResponded, isNil},
		{ConnectError, StateConnecting, StateDisconnected, as[*ConnectionError]("cm: connection with 127.0.0.1:4000 failed: boom")},
		{ConnectError, StateAccepted, StateDisconnected, as[*ConnectionError]("cm: connection with 10.9.9.9:999 failed: boom")},
		{ConnectError, StateRequest, StateDisconnected, as[*ConnectionError]("cm: connection with 10.9.9.9:999 failed: boom")},
		{Unreachable, StateConnecting, StateDisconnected, as[*UnreachableError]("cm: 127.0.0.1:4000 is unreachable: boom")},
		{Rejected, StateConnecting, StateDisconnected, as[*RejectedError]("cm: connection to 127.0.0.1:4000 rejected: boom")},
		{Rejected, StateAccepted, StateDisconnected, as[*RejectedError]("cm: connection to 10.9.9.9:999 rejected: boom")},
		{Established, StateConnecting, StateConnected, isNil},
		{Established, StateAccepted, StateConnected, isNil},
		{Disconnected, StateConnected, StateDisconnected, as[*ConnectionError]("cm: connection with 127.0.0.1:4000 failed: boom")},
		{DeviceRemoval, StateConnected, StateDisconnected, as[*DeviceRemovedError](`cm: device "soft0" was removed: boom`)},
		{DeviceRemoval, StateBound, StateDisconnected, as[*DeviceRemovedError](`cm: device "" was removed: boom`)},
		{DeviceRemoval, StateListening, StateDisconnected, as[*DeviceRemovedError](`cm: device "" was removed: boom`)},
		{MulticastJoin, StateAddrResolved, StateAddrResolved, isNil},
		{MulticastError, StateAddrResolved, StateAddrResolved, as[*ConnectionError]("cm: connection with 127.0.0.1:4000 failed: boom")},
		{AddrChange, StateConnected, StateConnected, isNil},
		{TimewaitExit, StateDisconnected, StateDisconnected, isNil},
	} {
		t.Run(c.ev.String()+" while "+c.from.String(), func(t *testing.T) {
			d := newSoft()
			ec := queueOn(t, d)
			id, f := toState(t, ec, d, c.from)
			f.emit(c.ev, withErr(boom), func(ev *driver.CMEvent) { ev.Param.PrivateData = []byte("pd") })
			ev := mustGet(t, ec, c.ev)
			require.Same(t, id, ev.ID)
			require.Equal(t, "pd", string(ev.Param.PrivateData))
			require.Equal(t, c.to, id.State())
			c.check(t, ev.Err)
			if ev.Err != nil {
				require.ErrorIs(t, ev.Err, boom)
				require.Equal(t, c.ev.String()+" ("+ev.Err.Error()+")", ev.String())
			}
		})
	}
}

func isNil(t *testing.T, err error) { require.NoError(t, err) }

func as[E error](text string) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		var e E
		require.ErrorAs(t, err, &e)
		require.EqualError(t, err, text)
	}
}

// An event that does not belong to the id's state is passed on and moves nothing;
// no event brings an id back from its end.
func TestEventsOutOfPlace(t *testing.T) {
	for _, s := range allStates {
		for _, ev := range allEvents {
			to := s.after(ev, false)
			if to == s {
				continue
			}
			require.NotContains(t, []State{StateDisconnected, StateClosed}, s, "%v leads from %v to %v", ev, s, to)
			require.NotEqual(t, StateClosed, to)
			require.NotEqual(t, ConnectRequest, ev)
		}
	}
	d := newSoft()
	ec := queueOn(t, d)
	id, f := toState(t, ec, d, StateConnected)
	f.emit(AddrResolved)
	mustGet(t, ec, AddrResolved)
	require.Equal(t, StateConnected, id.State())
}

func TestAddrErrorLeadsBackToBound(t *testing.T) {
	require.Equal(t, StateBound, StateAddrResolving.after(AddrError, true))
	require.Equal(t, StateIdle, StateAddrResolving.after(AddrError, false))
}

func TestOrderlyDisconnectHasNoError(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	_, f := toState(t, ec, d, StateConnected)
	f.emit(Disconnected)
	ev := mustGet(t, ec, Disconnected)
	require.NoError(t, ev.Err)
	require.Equal(t, "DISCONNECTED", ev.String())
}

// Drivers that give no reason still make an error.
func TestFailuresWithoutAReason(t *testing.T) {
	for ev, want := range map[EventType]error{
		AddrError: verbs.ErrNoRoute, RouteError: verbs.ErrNoRoute, Unreachable: ErrUnreachable,
		Rejected: ErrRejected, DeviceRemoval: ErrDeviceRemoved,
	} {
		err := eventError(&ID{}, &driver.CMEvent{Type: driver.CMEventType(ev)})
		require.ErrorIs(t, err, want, ev)
		require.NotEmpty(t, err.Error())
	}
	require.EqualError(t, eventError(&ID{}, &driver.CMEvent{Type: driver.CMConnectError}), "cm: connection with invalid AddrPort failed")
}

func TestRejectedError(t *testing.T) {
	refusal := NewRefusal(RefusedVersion, "too old")
	wire, err := refusal.MarshalBinary()
	require.NoError(t, err)
	wire = append(wire, make([]byte, MaxRejectPrivateData-len(wire))...)
	reject := func(reason RejectReason, data []byte, err error) error {
		return eventError(&ID{}, &driver.CMEvent{Type: driver.CMRejected, Reason: driver.RejectReason(reason), Err: err, Param: driver.ConnParam{PrivateData: data}})
	}

	t.Run("nobody listens", func(t *testing.T) {
		err := reject(RejectNoService, nil, nil)
		require.ErrorIs(t, err, ErrRejected)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NotErrorIs(t, err, syscall.ETIMEDOUT)
		require.NotErrorIs(t, err, ErrRefused)
	})
	t.Run("timeout", func(t *testing.T) {
		err := reject(RejectTimeout, nil, os.ErrDeadlineExceeded)
		require.ErrorIs(t, err, ErrRejected)
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NotErrorIs(t, err, syscall.ECONNREFUSED)
		require.True(t, isTimeout(err))
	})
	t.Run("refusal", func(t *testing.T) {
		err := reject(RejectConsumer, wire, nil)
		require.ErrorIs(t, err, ErrRejected)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorIs(t, err, ErrVersion)
		var re *RefusedError
		require.ErrorAs(t, err, &re)
		require.Equal(t, refusal, re.Refusal)
		require.ErrorContains(t, err, `"too old"`)
	})
	t.Run("private data of another protocol", func(t *testing.T) {
		err := reject(RejectConsumer, []byte("whatever"), nil)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NotErrorIs(t, err, ErrRefused)
	})
	t.Run("private data that the transport made up", func(t *testing.T) {
		require.NotErrorIs(t, reject(RejectNoService, wire, nil), ErrRefused)
	})
}

func TestTimeoutsAreTimeouts(t *testing.T) {
	for _, ev := range []EventType{Unreachable, ConnectError} {
		require.True(t, isTimeout(eventError(&ID{}, &driver.CMEvent{Type: driver.CMEventType(ev), Err: os.ErrDeadlineExceeded})))
		require.False(t, isTimeout(eventError(&ID{}, &driver.CMEvent{Type: driver.CMEventType(ev), Err: verbs.ErrPeerGone})))
	}
}

// TestEventTypes: an event has one number and one name here and in the drivers.
func TestEventTypes(t *testing.T) {
	types := []EventType{
		AddrResolved, AddrError, RouteResolved, RouteError, ConnectRequest, ConnectResponse, ConnectError, Unreachable,
		Rejected, Established, Disconnected, DeviceRemoval, MulticastJoin, MulticastError, AddrChange, TimewaitExit,
	}
	for i, of := range []driver.CMEventType{
		driver.CMAddrResolved, driver.CMAddrError, driver.CMRouteResolved, driver.CMRouteError, driver.CMConnectRequest,
		driver.CMConnectResponse, driver.CMConnectError, driver.CMUnreachable, driver.CMRejected, driver.CMEstablished,
		driver.CMDisconnected, driver.CMDeviceRemoval, driver.CMMulticastJoin, driver.CMMulticastError, driver.CMAddrChange,
		driver.CMTimewaitExit,
	} {
		require.EqualValues(t, of, types[i])
		require.Equal(t, of.String(), types[i].String())
	}
	require.Equal(t, "EventType(16)", EventType(16).String())
}

// TestRejectReasons: so has a reason, and private data has one bound.
func TestRejectReasons(t *testing.T) {
	for reason, of := range map[RejectReason]driver.RejectReason{
		RejectNone: driver.RejectNone, RejectNoQP: driver.RejectNoQP, RejectTimeout: driver.RejectTimeout,
		RejectNoService: driver.RejectNoService, RejectConsumer: driver.RejectConsumer, RejectDenied: driver.RejectDenied,
	} {
		require.EqualValues(t, of, reason)
		require.Equal(t, of.String(), reason.String())
	}
	require.Equal(t, driver.MaxConnectPrivateData, MaxConnectPrivateData)
	require.Equal(t, driver.MaxAcceptPrivateData, MaxAcceptPrivateData)
	require.Equal(t, driver.MaxRejectPrivateData, MaxRejectPrivateData)
}
