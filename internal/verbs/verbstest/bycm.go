package verbstest

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// ByCM is how QPs that were made on no id are connected by the connection manager: by
// their numbers. Devices of iWARP know no other way.
type ByCM struct {
	Driver driver.Driver
	Device string
	Addr   netip.Addr // of the device
}

// An idEvents is a CMID and what it tells.
type idEvents struct {
	driver.CMID
	t      testing.TB
	events chan driver.CMEvent
	of     atomic.Pointer[End] // that it connects by number
}

func (x *idEvents) sink(ev driver.CMEvent) {
	if e := x.of.Load(); e != nil && ev.Type == driver.CMDisconnected {
		// It may be closed by now.
		go func() { _ = e.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState) }()
	}
	x.events <- ev
}

func (b *ByCM) newID(t testing.TB) *idEvents {
	t.Helper()
	x := &idEvents{t: t, events: make(chan driver.CMEvent, 16)}
	id, err := b.Driver.CreateID(b.Device, x.sink)
	require.NoError(t, err)
	x.CMID = id
	closeAtEnd(t, "CMID", id)
	return x
}

func (x *idEvents) next(want driver.CMEventType) driver.CMEvent {
	x.t.Helper()
	select {
	case ev := <-x.events:
		require.Equal(x.t, want, ev.Type, "event %v (%v) instead of %v", ev.Type, ev.Err, want)
		return ev
	case <-time.After(defaultTimeout):
		x.t.Fatalf("no %v", want)
		return driver.CMEvent{}
	}
}

// connect takes two QPs from RESET, or from INIT, to RTS. The ids live as long as the test:
// a connection ends with its id.
func (b *ByCM) connect(a, z *End) {
	a.t.Helper()
	l := b.newID(a.t)
	require.NoError(a.t, l.BindAddr(netip.AddrPortFrom(b.Addr, 0)))
	require.NoError(a.t, l.Listen(1))
	c := b.newID(a.t)
	c.dial(l.LocalAddr(), a)
	b.accept(l, z)
	c.next(driver.CMEstablished)
}

// dial begins the connection of the End.
func (x *idEvents) dial(to netip.AddrPort, e *End) {
	x.t.Helper()
	require.NoError(x.t, x.ResolveAddr(netip.AddrPort{}, to, defaultTimeout))
	x.next(driver.CMAddrResolved)
	require.NoError(x.t, x.ResolveRoute(defaultTimeout))
	x.next(driver.CMRouteResolved)
	e.toInit()
	x.of.Store(e)
	require.NoError(x.t, x.Connect(numbered(e.QP), defaultTimeout))
}

// accept connects the End to the next request of l.
func (b *ByCM) accept(l *idEvents, e *End) {
	e.t.Helper()
	s := &idEvents{CMID: l.next(driver.CMConnectRequest).ID, t: e.t, events: make(chan driver.CMEvent, 16)}
	s.of.Store(e)
	s.SetSink(s.sink)
	closeAtEnd(e.t, "CMID", s)
	e.toInit()
	require.NoError(e.t, s.Accept(numbered(e.QP)))
	s.next(driver.CMEstablished)
}

// numbered are the parameters for a QP that was made on no id.
func numbered(qp verbs.QP) *driver.ConnParam {
	p := connParam(nil)
	p.QPNum, p.ResponderResources, p.InitiatorDepth = qp.QPN(), 16, 16
	return p
}

// toInit takes a fresh QP to INIT.
func (e *End) toInit() {
	e.t.Helper()
	if e.QP.State() == verbs.QPReset {
		e.Init()
	}
}
