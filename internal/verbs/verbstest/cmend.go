package verbstest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// cmID is a CMID with its events.
type cmID struct {
	driver.CMID
	e      *env
	events chan driver.CMEvent
}

// newID makes a CMID on the configured device.
func (e *env) newID() *cmID {
	e.t.Helper()
	c := &cmID{e: e, events: make(chan driver.CMEvent, 256)}
	id, err := e.cfg.Driver.CreateID(e.cfg.Device, func(ev driver.CMEvent) { c.events <- ev })
	require.NoError(e.t, err)
	c.CMID = id
	closeAtEnd(e.t, "CMID", id)
	return c
}

// adopt takes over the id of a CONNECT_REQUEST.
func (e *env) adopt(id driver.CMID) *cmID {
	c := &cmID{CMID: id, e: e, events: make(chan driver.CMEvent, 256)}
	id.SetSink(func(ev driver.CMEvent) { c.events <- ev })
	closeAtEnd(e.t, "CMID", id)
	return c
}

// next requires the next event to be of the type. TIMEWAIT_EXIT may come at any
// time after a disconnect, and is passed over.
func (c *cmID) next(want driver.CMEventType) driver.CMEvent {
	c.e.t.Helper()
	for {
		ev := receive(c.e, c.events)
		if ev.Type == driver.CMTimewaitExit && want != ev.Type {
			continue
		}
		require.Equal(c.e.t, want, ev.Type, "event %v (%v) instead of %v", ev.Type, ev.Err, want)
		return ev
	}
}

// nextOf requires the next event to be of one of the types.
func (c *cmID) nextOf(want ...driver.CMEventType) driver.CMEvent {
	c.e.t.Helper()
	ev := receive(c.e, c.events)
	require.Contains(c.e.t, want, ev.Type, "event %v (%v)", ev.Type, ev.Err)
	return ev
}

// silent requires that no event but TIMEWAIT_EXIT comes for a while.
func (c *cmID) silent() {
	c.e.t.Helper()
	timer := time.NewTimer(c.e.cfg.Quiet)
	defer timer.Stop()
	for {
		select {
		case ev := <-c.events:
			require.Equal(c.e.t, driver.CMTimewaitExit, ev.Type, "unexpected event %v (%v)", ev.Type, ev.Err)
		case <-timer.C:
			return
		}
	}
}

// cmAddr is an address by which the device's CM is reached.
func (e *env) cmAddr() netip.Addr {
	if e.cfg.Addr.IsValid() {
		return e.cfg.Addr
	}
	return e.at.GID.Addr()
}

// listen starts a listener on a port of its choice.
func (e *env) listen() *cmID {
	e.t.Helper()
	l := e.newID()
	require.NoError(e.t, l.BindAddr(netip.AddrPortFrom(e.cmAddr(), 0)))
	require.NoError(e.t, l.Listen(16))
	require.NotZero(e.t, l.LocalAddr().Port())
	return l
}

// resolve makes a client id that is ready to make a QP and connect.
func (e *env) resolve(to netip.AddrPort) *cmID {
	e.t.Helper()
	c := e.newID()
	require.NoError(e.t, c.ResolveAddr(netip.AddrPort{}, to, e.cfg.Timeout))
	c.next(driver.CMAddrResolved)
	require.NotNil(e.t, c.Verbs())
	require.NoError(e.t, c.ResolveRoute(e.cfg.Timeout))
	c.next(driver.CMRouteResolved)
	return c
}

// end makes an End on the id's device with a QP of the id, in INIT.
func (c *cmID) end(cfg EndConfig) *End {
	c.e.t.Helper()
	x := newEndWith(c.e.t, c.Verbs(), cfg, c.e.cfg.Timeout,
		func(pd verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) { return c.CreateQP(pd, attr) })
	require.Equal(c.e.t, verbs.QPInit, x.QP.State(), "a QP of an id takes receives at once")
	return x
}

// connParam are parameters that fit every device.
func connParam(privateData []byte) *driver.ConnParam {
	return &driver.ConnParam{
		PrivateData: privateData, ResponderResources: 1, InitiatorDepth: 1,
		RetryCount: 7, RNRRetryCount: 7,
	}
}

type cmOptions struct {
	request, reply []byte
	client, server EndConfig
}

// cmPair is a Pair that the CM connected: A is the client's End.
type cmPair struct {
	*Pair
	listener, client, server *cmID
}

// cmPair goes through the whole flow and looks at each event.
func (e *env) cmPair(o cmOptions) *cmPair {
	e.t.Helper()
	l := e.listen()
	c := e.resolve(l.LocalAddr())
	a := c.end(o.client)
	require.NoError(e.t, c.Connect(connParam(o.request), e.cfg.Timeout))

	request := l.next(driver.CMConnectRequest)
	require.NotNil(e.t, request.ID)
	require.Equal(e.t, l.CMID, request.ListenID)
	requirePrivateData(e.t, o.request, request.Param.PrivateData)
	s := e.adopt(request.ID)
	b := s.end(o.server)
	require.NoError(e.t, s.Accept(connParam(o.reply)))

	up := c.next(driver.CMEstablished)
	require.Equal(e.t, c.CMID, up.ID)
	requirePrivateData(e.t, o.reply, up.Param.PrivateData)
	up = s.next(driver.CMEstablished)
	require.Equal(e.t, s.CMID, up.ID)
	require.Equal(e.t, verbs.QPRTS, a.QP.State())
	require.Equal(e.t, verbs.QPRTS, b.QP.State())
	return &cmPair{Pair: &Pair{A: a, B: b}, listener: l, client: c, server: s}
}

// answered connects a client up to the answer, at a moment before, while or after the client
// confirms it, another one in each round. Both ends have receive 1.
func (e *env) answered(round int) (client, server *cmID, a, b *End) {
	e.t.Helper()
	l := e.listen()
	client = e.resolve(l.LocalAddr())
	a = client.end(EndConfig{MemSize: 4096})
	a.Recv(1, 0, 64)
	require.NoError(e.t, client.Connect(connParam(nil), e.cfg.Timeout))
	server = e.adopt(l.next(driver.CMConnectRequest).ID)
	b = server.end(EndConfig{MemSize: 4096})
	b.Recv(1, 0, 64)
	require.NoError(e.t, server.Accept(connParam(nil)))
	time.Sleep(time.Duration(round%6) * 200 * time.Microsecond)
	return client, server, a, b
}

// requirePrivateData compares private data, which may be padded with zeros.
func requirePrivateData(t testing.TB, want, got []byte) {
	t.Helper()
	require.GreaterOrEqual(t, len(got), len(want), "private data %q", got)
	require.Equal(t, append([]byte{}, want...), append([]byte{}, got[:len(want)]...))
	for _, b := range got[len(want):] {
		require.Zero(t, b, "padding of private data %q", got)
	}
}
