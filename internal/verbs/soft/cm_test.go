//go:build linux && (amd64 || arm64)

package soft

import (
	"io"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// patience is how long a test waits for what must happen, on the busiest machine.
const patience = 30 * time.Second

// A testID is an id with its events.
type testID struct {
	driver.CMID
	t      *testing.T
	events chan driver.CMEvent
	qp     verbs.QP
}

func newTestID(t *testing.T, opts driver.CMOptions) *testID {
	t.Helper()
	events := make(chan driver.CMEvent, 4096)
	id, err := softDriver{}.CreateID("", func(ev driver.CMEvent) { events <- ev })
	require.NoError(t, err)
	require.NoError(t, id.SetOptions(opts))
	ti := &testID{CMID: id, t: t, events: events}
	t.Cleanup(ti.close)
	return ti
}

// close destroys QP and id, in the order that verbs want.
func (id *testID) close() {
	if id.qp != nil {
		id.qp.Close()
	}
	id.Close()
}

// next waits for the next event, which must be of the type.
func (id *testID) next(typ driver.CMEventType) driver.CMEvent {
	id.t.Helper()
	select {
	case ev := <-id.events:
		require.Equal(id.t, typ, ev.Type, "%v: %v", ev.Type, ev.Err)
		return ev
	case <-time.After(patience):
		require.FailNow(id.t, "no event", "%v is due", typ)
		return driver.CMEvent{}
	}
}

// nothing checks that no event has come.
func (id *testID) nothing() {
	id.t.Helper()
	require.Empty(id.t, id.events)
}

// request waits for a CONNECT_REQUEST and gives its id events of its own.
func (id *testID) request() (*testID, driver.CMEvent) {
	id.t.Helper()
	ev := id.next(driver.CMConnectRequest)
	require.Equal(id.t, id.CMID, ev.ListenID)
	events := make(chan driver.CMEvent, 4096)
	ev.ID.SetSink(func(ev driver.CMEvent) { events <- ev })
	child := &testID{CMID: ev.ID, t: id.t, events: events}
	id.t.Cleanup(child.close)
	return child, ev
}

// createQP gives the id a QP with CQs and a PD of its own.
func (id *testID) createQP() verbs.QP {
	t := id.t
	t.Helper()
	ctx := id.Verbs()
	require.NotNil(t, ctx)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	send, err := ctx.CreateCQ(64, nil)
	require.NoError(t, err)
	recv, err := ctx.CreateCQ(64, nil)
	require.NoError(t, err)
	id.qp, err = id.CreateQP(pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: send, RecvCQ: recv,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64},
	})
	require.NoError(t, err)
	require.Equal(t, verbs.QPInit, id.qp.State())
	qp := id.qp
	t.Cleanup(func() {
		qp.Close()
		send.Close()
		recv.Close()
		pd.Close()
	})
	return id.qp
}

// listenAt listens at addr, "127.0.0.1:0" for instance.
func listenAt(t *testing.T, addr string, backlog int, opts driver.CMOptions) *testID {
	t.Helper()
	id := newTestID(t, opts)
	require.NoError(t, id.BindAddr(netip.MustParseAddrPort(addr)))
	require.NotZero(t, id.LocalAddr().Port())
	require.NoError(t, id.Listen(backlog))
	return id
}

func listenerOf(id *testID) *listener { return id.CMID.(*cmID).listen }

// resolved is a dialer with a QP, ready to connect to dst.
func resolved(t *testing.T, dst netip.AddrPort, opts driver.CMOptions) *testID {
	t.Helper()
	id := newTestID(t, opts)
	id.resolve(dst)
	id.createQP()
	return id
}

// resolve takes the id as far as to where it may have a QP.
func (id *testID) resolve(dst netip.AddrPort) {
	id.t.Helper()
	require.NoError(id.t, id.ResolveAddr(netip.AddrPort{}, dst, patience))
	id.next(driver.CMAddrResolved)
	require.NoError(id.t, id.ResolveRoute(patience))
	id.next(driver.CMRouteResolved)
}

// dialTo starts to connect to dst.
func dialTo(t *testing.T, dst netip.AddrPort) *testID {
	t.Helper()
	id := resolved(t, dst, driver.CMOptions{})
	require.NoError(t, id.Connect(nil, patience))
	return id
}

// connected makes a connection between two ids.
func connected(t *testing.T) (dialer, accepted *testID) {
	t.Helper()
	l := listenAt(t, "127.0.0.1:0", 1, driver.CMOptions{})
	dialer = dialTo(t, l.LocalAddr())
	accepted, _ = l.request()
	accepted.createQP()
	require.NoError(t, accepted.Accept(nil))
	dialer.next(driver.CMEstablished)
	accepted.next(driver.CMEstablished)
	l.Close()
	return dialer, accepted
}

// useDevice sees that there are the descriptors of the poller and of the shared context,
// which stay once they are.
func useDevice(t testing.TB) {
	t.Helper()
	pd, err := soft0.sharedContext().AllocPD()
	require.NoError(t, err)
	cq, err := soft0.sharedContext().CreateCQ(1, nil)
	require.NoError(t, err)
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	for _, c := range []io.Closer{qp, cq, pd} {
		require.NoError(t, c.Close())
	}
}

// noLeaks checks that descriptors and goroutines end up as many as they were, when what is
// kept for the next dials has expired. It must come before everything that is to be
// cleaned up.
func noLeaks(t *testing.T) {
	t.Helper()
	useDevice(t)
	preparePause() // what it opens stays
	fds, routines := len(leaktest.OpenFiles()), runtime.NumGoroutine()
	t.Cleanup(func() {
		left := func() bool { return len(leaktest.OpenFiles()) > fds || runtime.NumGoroutine() > routines }
		if until(func() bool { return !left() }) {
			return
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d descriptors instead of %d, %d goroutines instead of %d\n%s",
			len(leaktest.OpenFiles()), fds, runtime.NumGoroutine(), routines, stacks[:runtime.Stack(stacks, true)])
	})
}

// until waits for what no channel tells, and reports whether it came to be.
func until(ok func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}

func TestConnectFlow(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 16, driver.CMOptions{})

	d := newTestID(t, driver.CMOptions{})
	require.Nil(t, d.Verbs())
	require.NoError(t, d.ResolveAddr(netip.AddrPort{}, l.LocalAddr(), patience))
	d.next(driver.CMAddrResolved)
	require.Same(t, l.Verbs(), d.Verbs())
	require.Equal(t, l.LocalAddr(), d.RemoteAddr())
	require.Equal(t, l.LocalAddr().Addr(), d.LocalAddr().Addr())
	require.NotZero(t, d.LocalAddr().Port())
	require.NoError(t, d.ResolveRoute(patience))
	d.next(driver.CMRouteResolved)
	d.createQP()
	require.NoError(t, d.Connect(&driver.ConnParam{
		PrivateData: []byte("question"), ResponderResources: 3, InitiatorDepth: 4, RetryCount: 5, RNRRetryCount: 6,
	}, patience))

	a, ev := l.request()
	require.Equal(t, "question", string(ev.Param.PrivateData))
	require.EqualValues(t, 4, ev.Param.ResponderResources) // what the dialer initiates
	require.EqualValues(t, 3, ev.Param.InitiatorDepth)
	require.EqualValues(t, 5, ev.Param.RetryCount)
	require.Equal(t, d.qp.QPN(), ev.Param.QPNum)
	require.Equal(t, l.LocalAddr(), a.LocalAddr())
	require.Equal(t, d.LocalAddr(), a.RemoteAddr())
	a.createQP()
	require.NoError(t, a.Accept(&driver.ConnParam{PrivateData: []byte("answer"), ResponderResources: 2, InitiatorDepth: 1, RNRRetryCount: 7}))

	ev = d.next(driver.CMEstablished)
	require.Equal(t, "answer", string(ev.Param.PrivateData))
	require.EqualValues(t, 2, ev.Param.InitiatorDepth)
	require.Equal(t, a.qp.QPN(), ev.Param.QPNum)
	a.next(driver.CMEstablished)
	require.Equal(t, verbs.QPRTS, d.qp.State())
	require.Equal(t, verbs.QPRTS, a.qp.State())
	require.EqualValues(t, 1, l.ListenStats().Requests)

	require.NoError(t, d.Disconnect())
	for _, id := range []*testID{d, a} {
		require.NoError(t, id.next(driver.CMDisconnected).Err)
		id.next(driver.CMTimewaitExit)
		require.Equal(t, verbs.QPErr, id.qp.State())
		require.NoError(t, id.Disconnect())
		id.nothing()
	}
}

func TestDisconnectByClose(t *testing.T) {
	noLeaks(t)
	for _, dialerFirst := range []bool{true, false} {
		d, a := connected(t)
		if !dialerFirst {
			d, a = a, d
		}
		require.NoError(t, d.Close())
		require.NoError(t, a.next(driver.CMDisconnected).Err)
		a.next(driver.CMTimewaitExit)
		d.nothing()
	}
}

func TestCallsInTheWrongState(t *testing.T) {
	noLeaks(t)
	id := newTestID(t, driver.CMOptions{})
	addr := netip.MustParseAddrPort("127.0.0.1:0")
	require.ErrorIs(t, id.Listen(1), verbs.ErrState)
	require.ErrorIs(t, id.ResolveRoute(0), verbs.ErrState)
	require.ErrorIs(t, id.Connect(nil, 0), verbs.ErrState)
	require.ErrorIs(t, id.Accept(nil), verbs.ErrState)
	require.ErrorIs(t, id.Reject(nil), verbs.ErrState)
	require.ErrorIs(t, id.Disconnect(), verbs.ErrState)
	_, err := id.CreateQP(nil, nil)
	require.ErrorIs(t, err, verbs.ErrState)

	require.NoError(t, id.BindAddr(addr))
	require.ErrorIs(t, id.BindAddr(addr), verbs.ErrState)
	require.ErrorIs(t, id.SetOptions(driver.CMOptions{}), verbs.ErrState)
	require.NoError(t, id.Listen(1))
	require.ErrorIs(t, id.ResolveAddr(addr, id.LocalAddr(), 0), verbs.ErrState)
	require.NoError(t, id.Close())
	require.ErrorIs(t, id.Close(), verbs.ErrClosed)
	require.ErrorIs(t, id.BindAddr(addr), verbs.ErrClosed)

	d, _ := connected(t)
	require.ErrorIs(t, d.Connect(nil, 0), verbs.ErrState)
	_, err = d.CreateQP(nil, nil)
	require.ErrorIs(t, err, verbs.ErrState)
}

func TestArgumentsOutOfRange(t *testing.T) {
	noLeaks(t)
	for _, opts := range []driver.CMOptions{{AckTimeout: 32}, {MaxHalfOpen: -1}, {HandshakeTimeout: -1}} {
		require.ErrorIs(t, newTestID(t, driver.CMOptions{}).SetOptions(opts), verbs.ErrInvalid)
	}
	_, err := softDriver{}.CreateID("mlx5_0", func(driver.CMEvent) {})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	_, err = softDriver{}.CreateID("", nil)
	require.ErrorIs(t, err, verbs.ErrInvalid)

	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	d := resolved(t, l.LocalAddr(), driver.CMOptions{})
	for _, p := range []driver.ConnParam{
		{PrivateData: make([]byte, driver.MaxConnectPrivateData+1)}, {RetryCount: 8}, {RNRRetryCount: 8},
	} {
		require.ErrorIs(t, d.Connect(&p, 0), verbs.ErrInvalid)
	}
	require.NoError(t, d.Connect(&driver.ConnParam{PrivateData: make([]byte, driver.MaxConnectPrivateData)}, 0))
	a, _ := l.request()
	require.ErrorIs(t, a.Accept(nil), verbs.ErrState) // no QP
	a.createQP()
	require.ErrorIs(t, a.Accept(&driver.ConnParam{PrivateData: make([]byte, driver.MaxAcceptPrivateData+1)}), verbs.ErrInvalid)
	require.ErrorIs(t, a.Reject(make([]byte, driver.MaxRejectPrivateData+1)), verbs.ErrInvalid)
	require.NoError(t, a.Accept(&driver.ConnParam{PrivateData: make([]byte, driver.MaxAcceptPrivateData)}))
	require.Len(t, d.next(driver.CMEstablished).Param.PrivateData, driver.MaxAcceptPrivateData)
}

func TestReject(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	why := make([]byte, driver.MaxRejectPrivateData)
	copy(why, "not today")

	d := dialTo(t, l.LocalAddr())
	a, _ := l.request()
	require.NoError(t, a.Reject(why))
	ev := d.next(driver.CMRejected)
	require.Equal(t, driver.RejectConsumer, ev.Reason)
	require.Equal(t, why, ev.Param.PrivateData)
	require.ErrorIs(t, ev.Err, unix.ECONNREFUSED)
	require.ErrorIs(t, a.Accept(nil), verbs.ErrState)

	// A request that is closed unanswered is refused too.
	d = dialTo(t, l.LocalAddr())
	a, _ = l.request()
	require.NoError(t, a.Close())
	require.Equal(t, driver.RejectConsumer, d.next(driver.CMRejected).Reason)
}

func TestConnectToNobody(t *testing.T) {
	noLeaks(t)
	bound := newTestID(t, driver.CMOptions{})
	require.NoError(t, bound.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")))
	for range 2 { // bound without listening, then not bound at all
		ev := dialTo(t, bound.LocalAddr()).next(driver.CMRejected)
		require.Equal(t, driver.RejectNoService, ev.Reason)
		require.ErrorIs(t, ev.Err, unix.ECONNREFUSED)
		bound.Close()
	}
}

func TestListenAgainAtOnce(t *testing.T) {
	noLeaks(t)
	l := listenAt(t, "127.0.0.1:0", 4, driver.CMOptions{})
	for range 20 {
		require.NoError(t, l.Close())
		l = listenAt(t, l.LocalAddr().String(), 4, driver.CMOptions{})
	}
}
