package cm

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestActiveSide(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	id := newID(t, ec, Options{TOS: 7, AnyUser: true, AckTimeout: 16})
	dst := netip.AddrPortFrom(loopback, 4000)
	require.False(t, id.LocalAddr().IsValid())
	require.Nil(t, id.Verbs())
	require.Empty(t, id.Device())

	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, dst, 3*time.Second))
	f := d.last()
	require.Equal(t, 3*time.Second, f.timeout)
	require.Equal(t, driver.CMOptions{TOS: 7, AnyUser: true, AckTimeout: 16}, f.options)
	require.Equal(t, dst, id.RemoteAddr())
	require.Equal(t, netip.AddrPortFrom(loopback, 40000), id.LocalAddr())
	require.Equal(t, StateAddrResolving, id.State())
	f.emit(AddrResolved)
	require.Same(t, id, mustGet(t, ec, AddrResolved).ID)
	require.Equal(t, "soft0", id.Device())
	require.NotNil(t, id.Verbs())

	require.NoError(t, id.ResolveRoute(0))
	require.Equal(t, DefaultResolveTimeout, f.timeout)
	f.emit(RouteResolved)
	mustGet(t, ec, RouteResolved)
	_, err := id.CreateQP(nil, &verbs.QPInitAttr{})
	require.NoError(t, err)

	param := &ConnParam{PrivateData: []byte("hello"), RetryCount: 7, RNRRetryCount: 7, InitiatorDepth: 3}
	require.NoError(t, id.Connect(param, time.Minute))
	require.Equal(t, param, (*ConnParam)(f.param))
	require.Equal(t, time.Minute, f.timeout)
	require.Equal(t, StateConnecting, id.State())
	f.emit(Established, func(ev *driver.CMEvent) { ev.Param.PrivateData = []byte("welcome") })
	ev := mustGet(t, ec, Established)
	require.Equal(t, "welcome", string(ev.Param.PrivateData))
	require.Nil(t, ev.ListenID)
	require.Equal(t, StateConnected, id.State())

	require.NoError(t, id.Disconnect())
	f.emit(Disconnected)
	require.NoError(t, mustGet(t, ec, Disconnected).Err)
	require.Equal(t, StateDisconnected, id.State())
	require.NoError(t, id.Disconnect(), "again is no error")
	f.emit(TimewaitExit)
	mustGet(t, ec, TimewaitExit)

	require.NoError(t, id.Close())
	require.NoError(t, id.Close())
	require.Zero(t, d.open())
	require.Equal(t, []string{"SetOptions", "ResolveAddr", "ResolveRoute", "CreateQP", "Connect", "Disconnect", "Close"}, f.calls)
	require.Equal(t, dst, id.RemoteAddr(), "addresses stay")
	require.Equal(t, netip.AddrPortFrom(loopback, 40000), id.LocalAddr())
}

func TestPassiveSide(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	l := newID(t, ec, Options{})
	addr := netip.AddrPortFrom(wildcard, 4000)
	require.NoError(t, l.BindAddr(addr))
	require.NoError(t, l.Listen(5))
	fl := d.last()
	require.Equal(t, addr, l.LocalAddr())

	f := d.request(fl, "one")
	ev := mustGet(t, ec, ConnectRequest)
	require.Same(t, l, ev.ListenID)
	require.NotSame(t, l, ev.ID)
	require.Equal(t, "one", string(ev.Param.PrivateData))
	require.Equal(t, StateRequest, ev.ID.State())
	require.Equal(t, "10.9.9.9:999", ev.ID.RemoteAddr().String())
	require.NoError(t, ev.ID.Accept(&ConnParam{PrivateData: []byte("yes")}))
	require.Equal(t, "yes", string(f.param.PrivateData))
	require.Equal(t, StateAccepted, ev.ID.State())
	f.emit(Established)
	require.Same(t, ev.ID, mustGet(t, ec, Established).ID)
	require.Equal(t, StateConnected, ev.ID.State())

	f2 := d.request(fl, "two")
	ev2 := mustGet(t, ec, ConnectRequest)
	require.NoError(t, ev2.ID.Reject([]byte("no")))
	require.Equal(t, "no", string(f2.privateData))
	require.Equal(t, StateDisconnected, ev2.ID.State())
	require.NoError(t, ev2.ID.Close())

	require.NoError(t, l.Close())
	require.Equal(t, 1, d.open(), "an accepted id outlives its listening id")
	require.NoError(t, ev.ID.Close())
	require.Zero(t, d.open())
}

// The active side without a QP sees CONNECT_RESPONSE and accepts it.
func TestConnectResponse(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	id, f := toState(t, ec, d, StateResponded)
	require.NoError(t, id.Accept(nil))
	f.emit(Established)
	mustGet(t, ec, Established)
	require.Equal(t, StateConnected, id.State())
}

// Every call in every state either does something or fails with a StateError and
// changes nothing.
func TestCallsByState(t *testing.T) {
	dst := netip.AddrPortFrom(loopback, 5000)
	calls := []struct {
		op      string
		allowed []State
		call    func(*ID) error
		after   State
	}{
		{"bind", []State{StateIdle}, func(id *ID) error { return id.BindAddr(dst) }, StateBound},
		{"listen", []State{StateBound}, func(id *ID) error { return id.Listen(1) }, StateListening},
		{"resolve an address", []State{StateIdle, StateBound},
			func(id *ID) error { return id.ResolveAddr(netip.AddrPort{}, dst, 0) }, StateAddrResolving},
		{"resolve a route", []State{StateAddrResolved}, func(id *ID) error { return id.ResolveRoute(0) }, StateRouteResolving},
		{"connect", []State{StateRouteResolved}, func(id *ID) error { return id.Connect(nil, 0) }, StateConnecting},
		{"accept", []State{StateRequest, StateResponded}, func(id *ID) error { return id.Accept(nil) }, StateAccepted},
		{"reject", []State{StateRequest, StateResponded}, func(id *ID) error { return id.Reject(nil) }, StateDisconnected},
	}
	for _, c := range calls {
		for _, s := range allStates {
			t.Run(c.op+"/"+s.String(), func(t *testing.T) {
				d := newSoft()
				ec := queueOn(t, d)
				id, _ := toState(t, ec, d, s)
				require.Equal(t, s, id.State())
				err := c.call(id)
				if slices.Contains(c.allowed, s) {
					require.NoError(t, err)
					require.Equal(t, c.after, id.State())
					return
				}
				var se *StateError
				require.ErrorAs(t, err, &se)
				require.Equal(t, c.op, se.Op)
				require.Equal(t, s, se.State)
				if s == StateClosed {
					require.ErrorIs(t, err, verbs.ErrClosed)
				} else {
					require.ErrorIs(t, err, verbs.ErrState)
				}
				require.Equal(t, s, id.State())
			})
		}
	}
}

func TestDisconnectByState(t *testing.T) {
	for _, s := range allStates {
		d := newSoft()
		ec := queueOn(t, d)
		id, f := toState(t, ec, d, s)
		err := id.Disconnect()
		switch s {
		case StateConnected, StateAccepted:
			require.NoError(t, err, s)
			require.Contains(t, f.calls, "Disconnect")
		case StateDisconnected:
			require.NoError(t, err, s)
		default:
			var se *StateError
			require.ErrorAs(t, err, &se, s)
		}
	}
}

func TestCreateQPByState(t *testing.T) {
	allowed := []State{StateBound, StateAddrResolved, StateRouteResolving, StateRouteResolved, StateRequest, StateResponded}
	for _, s := range allStates {
		d := newSoft()
		ec := queueOn(t, d)
		id, _ := toState(t, ec, d, s)
		_, err := id.CreateQP(nil, nil)
		if slices.Contains(allowed, s) {
			require.NoError(t, err, s)
			continue
		}
		var se *StateError
		require.ErrorAs(t, err, &se, s)
	}
}

// A call that the driver refuses leaves the id where it was.
func TestRefusedCallsLeaveTheStateAlone(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		call  string
		state State
		do    func(*ID) error
	}{
		{"ResolveRoute", StateAddrResolved, func(id *ID) error { return id.ResolveRoute(0) }},
		{"Connect", StateRouteResolved, func(id *ID) error { return id.Connect(nil, 0) }},
		{"Accept", StateRequest, func(id *ID) error { return id.Accept(nil) }},
		{"Reject", StateRequest, func(id *ID) error { return id.Reject(nil) }},
	} {
		d := newSoft()
		ec := queueOn(t, d)
		id, f := toState(t, ec, d, c.state)
		f.errs = map[string]error{c.call: boom}
		err := c.do(id)
		require.ErrorIs(t, err, boom, c.call)
		var de *DriverError
		require.ErrorAs(t, err, &de)
		require.Equal(t, "soft", de.Driver)
		require.Equal(t, c.state, id.State(), c.call)
		f.errs = nil
		require.NoError(t, c.do(id), c.call)
	}
}

// What an event or Close did during a call stays, whatever the call comes to.
func TestEventsDuringARefusedCall(t *testing.T) {
	for want, answer := range map[State]func(*ID, *fakeID){
		StateDisconnected: func(_ *ID, f *fakeID) { f.emit(ConnectError) },
		StateClosed:       func(id *ID, _ *fakeID) { require.NoError(t, id.Close()) },
	} {
		d := newSoft()
		id, f := toState(t, queueOn(t, d), d, StateRouteResolved)
		f.errs = map[string]error{"Connect": errors.New("boom")}
		f.answer = func(f *fakeID, call string, _ time.Duration) { answer(id, f) }
		require.ErrorContains(t, id.Connect(nil, 0), "boom")
		require.Equal(t, want, id.State())
	}
}

func TestArguments(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	idle := newID(t, ec, Options{})
	ready, _ := toState(t, ec, d, StateRouteResolved)
	req, _ := toState(t, ec, d, StateRequest)
	bound, _ := toState(t, ec, d, StateBound)
	for name, err := range map[string]error{
		"no address":      idle.BindAddr(netip.AddrPort{}),
		"no destination":  idle.ResolveAddr(netip.AddrPort{}, netip.AddrPort{}, 0),
		"backlog":         bound.Listen(0),
		"connect data":    ready.Connect(&ConnParam{PrivateData: make([]byte, MaxConnectPrivateData+1)}, 0),
		"retry count":     ready.Connect(&ConnParam{RetryCount: 8}, 0),
		"RNR retry count": ready.Connect(&ConnParam{RNRRetryCount: 8}, 0),
		"accept data":     req.Accept(&ConnParam{PrivateData: make([]byte, MaxAcceptPrivateData+1)}),
		"reject data":     req.Reject(make([]byte, MaxRejectPrivateData+1)),
	} {
		require.ErrorIs(t, err, verbs.ErrInvalid, name)
	}
	require.NoError(t, ready.Connect(&ConnParam{PrivateData: make([]byte, MaxConnectPrivateData)}, 0))
	require.NoError(t, req.Accept(&ConnParam{PrivateData: make([]byte, MaxAcceptPrivateData)}))
}

// What brought an id to its end is told by every later call.
func TestStateErrorTellsTheCause(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	id, f := toState(t, ec, d, StateRequest)
	f.emit(ConnectError, withErr(verbs.ErrPeerGone))
	err := id.Accept(nil)
	require.ErrorIs(t, err, verbs.ErrState)
	require.ErrorIs(t, err, verbs.ErrPeerGone)
	require.ErrorContains(t, err, "cannot accept while the id is disconnected: ")
}

func TestListenStatsAreSummed(t *testing.T) {
	a, b := newSoft(), newNIC()
	ec := queueOn(t, a, b)
	id := newID(t, ec, Options{})
	require.NoError(t, id.BindAddr(netip.AddrPortFrom(wildcard, 4000)))
	require.NoError(t, id.Listen(1))
	a.last().stats = driver.CMListenStats{Requests: 1, HalfOpen: 2, Evicted: 3, TimedOut: 4, Malformed: 5, Denied: 6, Hangup: 7}
	b.last().stats = driver.CMListenStats{Requests: 10, HalfOpen: 20, Evicted: 30, TimedOut: 40, Malformed: 50, Denied: 60, Hangup: 70}
	require.Equal(t, ListenStats{Requests: 11, HalfOpen: 22, Evicted: 33, TimedOut: 44, Malformed: 55, Denied: 66, Hangup: 77}, id.ListenStats())
	require.Nil(t, id.Verbs())
	require.Empty(t, id.Device())
}

func TestCloseReportsTheDriversError(t *testing.T) {
	d := newSoft()
	ec := queueOn(t, d)
	id, f := toState(t, ec, d, StateConnected)
	f.errs = map[string]error{"Close": verbs.ErrBusy}
	require.ErrorIs(t, id.Close(), verbs.ErrBusy)
	require.Equal(t, StateClosed, id.State())
}

func TestStateNames(t *testing.T) {
	for _, s := range allStates {
		require.NotEmpty(t, s.String())
	}
	require.Equal(t, "State(?)", State(len(stateNames)).String())
}
