//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// testID is a CMID with its events.
type testID struct {
	driver.CMID
	t      *testing.T
	events chan driver.CMEvent
}

func newTestID(t *testing.T, opts driver.CMOptions) *testID {
	t.Helper()
	x := &testID{t: t, events: make(chan driver.CMEvent, 64)}
	id, err := ibvDriver{}.CreateID(needDevice(t).name, func(ev driver.CMEvent) { x.events <- ev })
	require.NoError(t, err)
	x.CMID = id
	t.Cleanup(func() { _ = id.Close() })
	require.NoError(t, id.SetOptions(opts))
	return x
}

func (x *testID) next(want driver.CMEventType) driver.CMEvent {
	x.t.Helper()
	for {
		select {
		case ev := <-x.events:
			if ev.Type == driver.CMTimewaitExit && want != ev.Type {
				continue
			}
			require.Equal(x.t, want, ev.Type, "%v: %v", ev.Type, ev.Err)
			return ev
		case <-time.After(30 * time.Second):
			x.t.Fatalf("no %v", want)
		}
	}
}

// adopt takes over the id of a request.
func (x *testID) adopt(id driver.CMID) *testID {
	y := &testID{CMID: id, t: x.t, events: make(chan driver.CMEvent, 64)}
	id.SetSink(func(ev driver.CMEvent) { y.events <- ev })
	x.t.Cleanup(func() { _ = id.Close() })
	return y
}

// deviceAddr is an address of the device.
func deviceAddr(t *testing.T) netip.Addr {
	t.Helper()
	if a := testAddr(t); a.IsValid() {
		return a
	}
	ctx, err := needDevice(t).Open()
	require.NoError(t, err)
	defer ctx.Close()
	where, err := verbstest.Locate(ctx)
	require.NoError(t, err)
	return where.GID.Addr()
}

func (x *testID) listen(backlog int) netip.AddrPort {
	x.t.Helper()
	require.NoError(x.t, x.BindAddr(netip.AddrPortFrom(deviceAddr(x.t), 0)))
	require.NoError(x.t, x.Listen(backlog))
	return x.LocalAddr()
}

func (x *testID) resolve(to netip.AddrPort) {
	x.t.Helper()
	require.NoError(x.t, x.ResolveAddr(netip.AddrPort{}, to, 5*time.Second))
	x.next(driver.CMAddrResolved)
	require.NoError(x.t, x.ResolveRoute(5*time.Second))
	x.next(driver.CMRouteResolved)
}

// qp makes a QP on the id.
func (x *testID) qp() verbs.QP {
	x.t.Helper()
	ctx := x.Verbs()
	pd, err := ctx.AllocPD()
	require.NoError(x.t, err)
	closeLater(x.t, pd)
	cq, err := ctx.CreateCQ(32, nil)
	require.NoError(x.t, err)
	closeLater(x.t, cq)
	qp, err := x.CreateQP(pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	require.NoError(x.t, err)
	closeLater(x.t, qp)
	return qp
}

func TestCMAttributes(t *testing.T) {
	l := newTestID(t, driver.CMOptions{AckTimeout: 14})
	to := l.listen(4)
	c := newTestID(t, driver.CMOptions{AckTimeout: 12, TOS: 0x20})
	c.resolve(to)
	a := c.qp()
	require.NoError(t, c.Connect(&driver.ConnParam{RetryCount: 5, RNRRetryCount: 6, InitiatorDepth: 3, ResponderResources: 2}, 5*time.Second))
	s := l.adopt(l.next(driver.CMConnectRequest).ID)
	b := s.qp()
	require.NoError(t, s.Accept(nil)) // what the peer asked for
	up := c.next(driver.CMEstablished)
	if got := []uint8{up.Param.InitiatorDepth, up.Param.ResponderResources}; onSoftIWARP(t) {
		assert.ElementsMatch(t, []uint8{3, 2}, got, "siw exchanges the two")
	} else {
		assert.Equal(t, []uint8{3, 2}, got, "as the event's receiver sees it")
	}
	s.next(driver.CMEstablished)

	if onIWARP(t) {
		return // the attributes below are of packets; iWARP leaves them to TCP
	}

	got, _, err := a.Query()
	require.NoError(t, err)
	assert.Equal(t, verbs.QPRTS, got.State)
	assert.EqualValues(t, 12, got.Timeout)
	assert.EqualValues(t, 5, got.RetryCnt)
	assert.EqualValues(t, 6, got.RNRRetry)
	assert.EqualValues(t, verbs.DefaultMinRNRTimer, got.MinRNRTimer)
	assert.EqualValues(t, 0x20, got.AH.TrafficClass)
	assert.NotZero(t, got.AccessFlags&verbs.AccessRemoteWrite)
	got, _, err = b.Query()
	require.NoError(t, err)
	assert.EqualValues(t, 14, got.Timeout, "the listener's")
	assert.EqualValues(t, verbs.DefaultMinRNRTimer, got.MinRNRTimer)
	assert.EqualValues(t, 5, got.RetryCnt)
	assert.EqualValues(t, 1, l.ListenStats().Requests)
}

// A QP that outlives its id is destroyed all the same.
func TestCMQPOutlivesID(t *testing.T) {
	l := newTestID(t, driver.CMOptions{})
	c := newTestID(t, driver.CMOptions{})
	c.resolve(l.listen(4))
	qp := c.qp()
	require.NoError(t, c.Close())
	assert.Equal(t, verbs.QPInit, qp.State())
	assert.NoError(t, qp.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState))
}

// Requests beyond the backlog wait until one is answered.
func TestCMBacklog(t *testing.T) {
	l := newTestID(t, driver.CMOptions{})
	to := l.listen(2)
	var clients []*testID
	for range 4 {
		c := newTestID(t, driver.CMOptions{})
		c.resolve(to)
		c.qp()
		require.NoError(t, c.Connect(nil, 20*time.Second))
		clients = append(clients, c)
	}
	first := l.adopt(l.next(driver.CMConnectRequest).ID)
	second := l.adopt(l.next(driver.CMConnectRequest).ID)
	select {
	case ev := <-l.events:
		t.Fatalf("%v beyond the backlog", ev.Type)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, first.Reject([]byte("no")))
	third := l.adopt(l.next(driver.CMConnectRequest).ID)
	require.NoError(t, second.Close())
	fourth := l.adopt(l.next(driver.CMConnectRequest).ID)
	for _, s := range []*testID{third, fourth} {
		s.qp()
		require.NoError(t, s.Accept(nil))
		s.next(driver.CMEstablished)
	}
	up, refused := 0, 0
	for _, c := range clients {
		switch ev := <-c.events; ev.Type {
		case driver.CMEstablished:
			up++
		case driver.CMRejected:
			refused++
		default:
			t.Errorf("%v: %v", ev.Type, ev.Err)
		}
	}
	assert.Equal(t, []int{2, 2}, []int{up, refused})
	assert.EqualValues(t, 4, l.ListenStats().Requests)
}

// Without a QP of its own an id hands the answer over for the application to
// bring up a QP by hand (CONNECT_RESPONSE).
func TestCMWithoutQP(t *testing.T) {
	if onIWARP(t) {
		t.Skip("iWARP's connection manager connects QPs itself, and none that do not exist")
	}
	l := newTestID(t, driver.CMOptions{})
	c := newTestID(t, driver.CMOptions{})
	c.resolve(l.listen(4))
	require.ErrorIs(t, c.Connect(nil, time.Second), verbs.ErrState)
	require.NoError(t, c.Connect(&driver.ConnParam{QPNum: 0x1234, RetryCount: 3}, 5*time.Second))
	req := l.next(driver.CMConnectRequest)
	assert.EqualValues(t, 0x1234, req.Param.QPNum)
	s := l.adopt(req.ID)
	qp := s.qp()
	require.NoError(t, s.Accept(&driver.ConnParam{PrivateData: []byte("hi")}))
	got := c.next(driver.CMConnectResponse)
	assert.Equal(t, qp.QPN(), got.Param.QPNum)
	assert.Equal(t, "hi", string(got.Param.PrivateData[:2]))
	require.NoError(t, c.Accept(nil))
	c.next(driver.CMEstablished)
	s.next(driver.CMEstablished)
	require.NoError(t, c.Disconnect())
	s.next(driver.CMDisconnected)
}

// noConfirmation leaves a test out that is about the dialer's confirmation.
func noConfirmation(t *testing.T) {
	t.Helper()
	if onIWARP(t) {
		t.Skip("iWARP has no message by which a dialer confirms")
	}
}

// A dialer may look at the answer before there is a connection, and leave it at that.
func TestCMAskToConfirm(t *testing.T) {
	l := newTestID(t, driver.CMOptions{})
	to := l.listen(4)
	for _, confirm := range []bool{true, false} {
		c := newTestID(t, driver.CMOptions{AskToConfirm: true})
		c.resolve(to)
		qp := c.qp()
		require.NoError(t, c.Connect(nil, 20*time.Second))
		s := l.adopt(l.next(driver.CMConnectRequest).ID)
		s.qp()
		require.NoError(t, s.Accept(&driver.ConnParam{PrivateData: []byte("hi")}))
		if onIWARP(t) { // whose answer is the last word
			ev := c.next(driver.CMEstablished)
			assert.Equal(t, "hi", string(ev.Param.PrivateData[:2]))
			s.next(driver.CMEstablished)
			continue
		}
		ev := c.next(driver.CMConnectResponse)
		assert.Equal(t, "hi", string(ev.Param.PrivateData[:2]))
		assert.Equal(t, verbs.QPInit, qp.State())
		if confirm {
			require.NoError(t, c.Accept(nil))
			c.next(driver.CMEstablished)
			s.next(driver.CMEstablished)
			assert.Equal(t, verbs.QPRTS, qp.State())
			continue
		}
		require.NoError(t, c.Close())
		s.next(driver.CMRejected)
	}
}

// A peer may have taken the confirmation and disconnected before the call that sent it has
// returned. There was a connection nevertheless.
func TestCMConfirmedAndLeft(t *testing.T) {
	noConfirmation(t)
	l := newTestID(t, driver.CMOptions{})
	to := l.listen(4)
	for range 30 {
		c := newTestID(t, driver.CMOptions{AskToConfirm: true})
		c.resolve(to)
		c.qp()
		require.NoError(t, c.Connect(nil, 20*time.Second))
		s := l.adopt(l.next(driver.CMConnectRequest).ID)
		s.qp()
		require.NoError(t, s.Accept(nil))
		c.next(driver.CMConnectResponse)
		confirmed := make(chan error, 1)
		go func() { confirmed <- c.Accept(nil) }()
		s.next(driver.CMEstablished)
		require.NoError(t, s.Disconnect())
		require.NoError(t, <-confirmed)
		c.next(driver.CMEstablished)
		c.next(driver.CMDisconnected)
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	}
}

// Where the dialer's confirmation does not come, the first data is as good.
func TestCMNotify(t *testing.T) {
	noConfirmation(t)
	l := newTestID(t, driver.CMOptions{})
	c := newTestID(t, driver.CMOptions{})
	c.resolve(l.listen(4))
	require.NoError(t, c.Connect(&driver.ConnParam{QPNum: 0x1234, RetryCount: 3}, 20*time.Second))
	s := l.adopt(l.next(driver.CMConnectRequest).ID)
	s.qp()
	require.ErrorIs(t, s.CMID.(driver.Notifier).Notify(), verbs.ErrState, "not answered yet")
	require.NoError(t, s.Accept(nil))
	c.next(driver.CMConnectResponse) // and is not confirmed
	require.NoError(t, s.CMID.(driver.Notifier).Notify())
	s.next(driver.CMEstablished)
	require.NoError(t, s.CMID.(driver.Notifier).Notify(), "again")
}

// The kernel repeats an answer for a minute, and rdma_destroy_id waits for that, if its connection
// is ended while the kernel has yet to see that data has arrived.
func TestCMNotifyAndEnd(t *testing.T) {
	noConfirmation(t)
	l := newTestID(t, driver.CMOptions{})
	to := l.listen(4)
	for i := range 60 {
		c := newTestID(t, driver.CMOptions{})
		c.resolve(to)
		require.NoError(t, c.Connect(&driver.ConnParam{QPNum: 0x1234, RetryCount: 3}, 20*time.Second))
		s := l.adopt(l.next(driver.CMConnectRequest).ID)
		s.qp()
		require.NoError(t, s.Accept(nil))
		c.next(driver.CMConnectResponse)
		began := time.Now()
		require.NoError(t, s.CMID.(driver.Notifier).Notify())
		if i%2 == 0 {
			require.NoError(t, s.Disconnect())
		}
		require.NoError(t, s.Close())
		require.Less(t, time.Since(began), 30*time.Second)
		require.NoError(t, c.Close())
	}
}

func TestCMReuseAddr(t *testing.T) {
	l := newTestID(t, driver.CMOptions{ReuseAddr: true})
	require.NoError(t, l.BindAddr(netip.AddrPortFrom(deviceAddr(t), 0)))
	again := newTestID(t, driver.CMOptions{ReuseAddr: true})
	require.NoError(t, again.BindAddr(l.LocalAddr()))
	other := newTestID(t, driver.CMOptions{})
	require.ErrorIs(t, other.BindAddr(l.LocalAddr()), syscall.EADDRINUSE)
}

func TestCMAddresses(t *testing.T) {
	require.ErrorIs(t, newTestID(t, driver.CMOptions{}).BindAddr(netip.MustParseAddrPort("127.0.0.1:0")), syscall.EADDRNOTAVAIL)
	for _, wildcard := range []string{"0.0.0.0:0", "[::]:0"} {
		l := newTestID(t, driver.CMOptions{})
		require.NoError(t, l.BindAddr(netip.MustParseAddrPort(wildcard)))
		require.NoError(t, l.Listen(1))
		require.Nil(t, l.Verbs(), "a wildcard is on no device")
		c := newTestID(t, driver.CMOptions{})
		c.resolve(netip.AddrPortFrom(deviceAddr(t), l.LocalAddr().Port()))
		c.qp()
		require.NoError(t, c.Connect(nil, 5*time.Second))
		s := l.adopt(l.next(driver.CMConnectRequest).ID)
		assert.Equal(t, c.RemoteAddr(), s.LocalAddr(), wildcard)
		assert.NotNil(t, s.Verbs())

		// The port is taken in both families, or in the one.
		other := newTestID(t, driver.CMOptions{})
		err := other.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), l.LocalAddr().Port()))
		require.ErrorIs(t, err, syscall.EADDRINUSE, wildcard)
		other = newTestID(t, driver.CMOptions{})
		err = other.BindAddr(netip.AddrPortFrom(netip.IPv6Unspecified(), l.LocalAddr().Port()))
		require.ErrorIs(t, err, syscall.EADDRINUSE, wildcard)
	}
}

func TestRouteErrors(t *testing.T) {
	needDevice(t)
	_, err := ibvDriver{}.Route("", netip.Addr{})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = ibvDriver{}.Route("", netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	_, err = ibvDriver{}.Route("", netip.MustParseAddr("203.0.113.1"))
	require.ErrorIs(t, err, verbs.ErrNoRoute)
}
