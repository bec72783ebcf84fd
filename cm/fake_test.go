package cm

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// fakeDriver is a driver.Driver whose ids do what the test says. Of its verbs only the
// queries of ports are there.
type fakeDriver struct {
	name      string
	device    string
	transport verbs.Transport
	routes    map[netip.Addr]driver.Route // by destination; a missing one is verbs.ErrNoRoute
	createErr error
	ports     []fakePort
	openErr   error

	prepare func(*fakeID) // called with each new id

	mu  sync.Mutex
	ids []*fakeID

	contexts atomic.Int32 // that Open has opened and nobody has closed
}

func (d *fakeDriver) Name() string { return d.name }

func (d *fakeDriver) Devices() ([]verbs.Device, error) {
	if d.createErr != nil {
		return nil, d.createErr
	}
	return []verbs.Device{fakeDevice{d}}, nil
}

func (d *fakeDriver) Route(device string, dst netip.Addr) (driver.Route, error) {
	if d.createErr != nil {
		return driver.Route{}, d.createErr
	}
	if device != "" && device != d.device {
		return driver.Route{}, verbs.ErrNoDevice
	}
	r, ok := d.routes[dst]
	if !ok {
		return driver.Route{}, verbs.ErrNoRoute
	}
	return r, nil
}

func (d *fakeDriver) CreateID(device string, sink driver.CMSink) (driver.CMID, error) {
	if d.createErr != nil {
		return nil, d.createErr
	}
	if device != "" && device != d.device {
		return nil, verbs.ErrNoDevice
	}
	id := &fakeID{driver: d, sink: sink, device: device}
	if d.prepare != nil {
		d.prepare(id)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids = append(d.ids, id)
	return id, nil
}

// last is the id that was made last.
func (d *fakeDriver) last() *fakeID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[len(d.ids)-1]
}

// open counts the ids that are not closed.
func (d *fakeDriver) open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, id := range d.ids {
		if !id.closed() {
			n++
		}
	}
	return n
}

// request has a client ask the listening id l.
func (d *fakeDriver) request(l *fakeID, privateData string) *fakeID {
	id := &fakeID{driver: d, sink: l.currentSink(), local: l.local, remote: netip.MustParseAddrPort("10.9.9.9:999"), opened: true}
	d.mu.Lock()
	d.ids = append(d.ids, id)
	d.mu.Unlock()
	l.currentSink()(driver.CMEvent{
		Type: driver.CMConnectRequest, ID: id, ListenID: l,
		Param: driver.ConnParam{PrivateData: []byte(privateData)},
	})
	return id
}

type fakeDevice struct{ *fakeDriver }

func (d fakeDevice) Name() string               { return d.device }
func (d fakeDevice) GUID() uint64               { return 1 }
func (d fakeDevice) Transport() verbs.Transport { return d.transport }

func (d fakeDevice) Open() (verbs.Context, error) {
	if d.openErr != nil {
		return nil, d.openErr
	}
	d.contexts.Add(1)
	return fakeContext{dev: d}, nil
}

type fakeContext struct {
	verbs.Context
	dev fakeDevice
}

func (c fakeContext) Device() verbs.Device { return c.dev }

func (c fakeContext) Close() error {
	c.dev.contexts.Add(-1)
	return nil
}

// fakePort is a port with its GID table, in which empty entries may be.
type fakePort struct {
	attr verbs.PortAttr
	gids []verbs.GIDEntry
	err  error // of QueryPort
}

func (c fakeContext) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{PhysPortCnt: len(c.dev.ports), MaxQPRdAtom: 8, MaxQPInitRdAtom: 4}, nil
}

func (c fakeContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	p := c.dev.ports[port-1]
	p.attr.GIDTblLen = len(p.gids)
	return p.attr, p.err
}

func (c fakeContext) QueryGID(port uint8, index int) (verbs.GIDEntry, error) {
	p := c.dev.ports[port-1]
	if index >= len(p.gids) {
		return verbs.GIDEntry{}, verbs.ErrInvalid
	}
	g := p.gids[index]
	g.Port, g.Index = port, index
	return g, nil
}

// fakeID records the calls and answers with what the test has set.
type fakeID struct {
	driver *fakeDriver
	device string

	mu            sync.Mutex
	sink          driver.CMSink
	options       driver.CMOptions
	local, remote netip.AddrPort
	opened        bool // Verbs is there
	calls         []string
	privateData   []byte
	param         *driver.ConnParam
	timeout       time.Duration
	isClosed      bool
	stats         driver.CMListenStats

	// errs are what calls fail with, by their names.
	errs map[string]error
	// answer is called for every call that an event follows.
	answer   func(id *fakeID, call string, timeout time.Duration)
	onListen func()
	choose   uint16 // what BindAddr makes of port 0
	inUse    map[uint16]bool
}

func (id *fakeID) called(call string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.calls = append(id.calls, call)
	return id.errs[call]
}

func (id *fakeID) begin(call string, timeout time.Duration) error {
	err := id.called(call)
	id.mu.Lock()
	id.timeout = timeout
	answer := id.answer
	id.mu.Unlock()
	if answer != nil {
		answer(id, call, timeout)
	}
	return err
}

func (id *fakeID) currentSink() driver.CMSink {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.sink
}

func (id *fakeID) closed() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.isClosed
}

// emit delivers an event, on the test's goroutine.
func (id *fakeID) emit(t EventType, change ...func(*driver.CMEvent)) {
	ev := driver.CMEvent{Type: driver.CMEventType(t), ID: id}
	for _, f := range change {
		f(&ev)
	}
	id.currentSink()(ev)
}

func withErr(err error) func(*driver.CMEvent) { return func(ev *driver.CMEvent) { ev.Err = err } }

func (id *fakeID) SetSink(s driver.CMSink) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.sink = s
}

func (id *fakeID) SetOptions(o driver.CMOptions) error {
	id.mu.Lock()
	id.options = o
	id.mu.Unlock()
	return id.called("SetOptions")
}

func (id *fakeID) BindAddr(a netip.AddrPort) error {
	if err := id.called("BindAddr"); err != nil {
		return err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if a.Port() == 0 {
		a = netip.AddrPortFrom(a.Addr(), id.choose)
	}
	if id.inUse[a.Port()] {
		return syscall.EADDRINUSE
	}
	id.local = a
	return nil
}

func (id *fakeID) Listen(int) error {
	if id.onListen != nil {
		id.onListen()
	}
	return id.called("Listen")
}

func (id *fakeID) ListenStats() driver.CMListenStats {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.stats
}

func (id *fakeID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	id.mu.Lock()
	id.remote, id.opened = dst, true
	if !id.local.IsValid() {
		id.local = netip.AddrPortFrom(id.driver.routes[dst.Addr()].Src, 40000)
	}
	if src.IsValid() {
		id.local = src
	}
	id.mu.Unlock()
	return id.begin("ResolveAddr", timeout)
}

func (id *fakeID) ResolveRoute(timeout time.Duration) error { return id.begin("ResolveRoute", timeout) }

func (id *fakeID) Verbs() verbs.Context {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.opened {
		return nil
	}
	return fakeContext{dev: fakeDevice{id.driver}}
}

func (id *fakeID) CreateQP(verbs.PD, *verbs.QPInitAttr) (verbs.QP, error) {
	return nil, id.called("CreateQP")
}

func (id *fakeID) Connect(p *driver.ConnParam, timeout time.Duration) error {
	id.mu.Lock()
	id.param = p
	id.mu.Unlock()
	return id.begin("Connect", timeout)
}

func (id *fakeID) Accept(p *driver.ConnParam) error {
	id.mu.Lock()
	id.param = p
	id.mu.Unlock()
	return id.begin("Accept", 0)
}

func (id *fakeID) Reject(b []byte) error {
	id.mu.Lock()
	id.privateData = b
	id.mu.Unlock()
	return id.called("Reject")
}

func (id *fakeID) Disconnect() error { return id.begin("Disconnect", 0) }

func (id *fakeID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local
}

func (id *fakeID) RemoteAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.remote
}

func (id *fakeID) Close() error {
	err := id.called("Close")
	id.mu.Lock()
	defer id.mu.Unlock()
	id.isClosed = true
	return err
}

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	hostAddr = netip.MustParseAddr("10.0.0.1")
	farAddr  = netip.MustParseAddr("10.0.0.2")
	wildcard = netip.IPv4Unspecified()
)

// newSoft is a driver like the software device's, newNIC one like a NIC's.
func newSoft() *fakeDriver {
	return &fakeDriver{
		name: "soft", device: "soft0", transport: verbs.TransportSoftware,
		routes: map[netip.Addr]driver.Route{
			loopback: {Device: "soft0", Src: loopback, SameHost: true},
			hostAddr: {Device: "soft0", Src: hostAddr, SameHost: true},
		},
	}
}

func newNIC() *fakeDriver {
	return &fakeDriver{
		name: "nic", device: "nic0", transport: verbs.TransportRoCE,
		routes: map[netip.Addr]driver.Route{
			hostAddr: {Device: "nic0", Src: hostAddr, SameHost: true},
			farAddr:  {Device: "nic0", Src: hostAddr},
		},
	}
}

// queueOn is a queue channel whose ids use the drivers.
func queueOn(t testing.TB, drivers ...driver.Driver) *EventChannel {
	return onDrivers(t, NewEventChannel(), drivers...)
}

func onDrivers(t testing.TB, ec *EventChannel, drivers ...driver.Driver) *EventChannel {
	ec.drivers = func() []driver.Driver { return drivers }
	t.Cleanup(func() { _ = ec.Close() })
	return ec
}

func newID(t testing.TB, ec *EventChannel, opts Options) *ID {
	id, err := ec.CreateID(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = id.Close() })
	return id
}

// mustGet takes an event that is there already.
func mustGet(t testing.TB, ec *EventChannel, want EventType) *Event {
	t.Helper()
	ev, err := ec.next()
	require.NoError(t, err)
	require.NotNil(t, ev, "no event, expected %s", want)
	require.Equal(t, want, ev.Type, "%v", ev)
	return ev
}

func requireEmpty(t testing.TB, ec *EventChannel) {
	t.Helper()
	ev, err := ec.next()
	require.NoError(t, err)
	require.Nil(t, ev)
}

// toState takes a new id there by its calls.
func toState(t testing.TB, ec *EventChannel, d *fakeDriver, want State) (*ID, *fakeID) {
	t.Helper()
	id := newID(t, ec, Options{})
	dst := netip.AddrPortFrom(loopback, 4000)
	switch want {
	case StateIdle:
		return id, nil
	case StateBinding:
		_, err := id.enter("bind", StateBinding, StateIdle)
		require.NoError(t, err)
		return id, nil
	case StateBound, StateListening, StateRequest, StateAccepted:
		require.NoError(t, id.BindAddr(dst))
		f := d.last()
		if want == StateBound {
			return id, f
		}
		require.NoError(t, id.Listen(4))
		if want == StateListening {
			return id, f
		}
		f = d.request(f, "")
		id = mustGet(t, ec, ConnectRequest).ID
		t.Cleanup(func() { _ = id.Close() })
		if want == StateAccepted {
			require.NoError(t, id.Accept(nil))
		}
		return id, f
	}
	require.NoError(t, id.ResolveAddr(netip.AddrPort{}, dst, time.Second))
	f := d.last()
	reached := func() bool { return id.State() == want }
	steps := []func(){
		func() {},
		func() { f.emit(AddrResolved); mustGet(t, ec, AddrResolved) },
		func() { require.NoError(t, id.ResolveRoute(time.Second)) },
		func() { f.emit(RouteResolved); mustGet(t, ec, RouteResolved) },
		func() { require.NoError(t, id.Connect(nil, time.Second)) },
		func() {
			if want == StateResponded {
				f.emit(ConnectResponse)
				mustGet(t, ec, ConnectResponse)
			}
		},
		func() { f.emit(Established); mustGet(t, ec, Established) },
		func() { f.emit(Disconnected); mustGet(t, ec, Disconnected) },
		func() { require.NoError(t, id.Close()) },
	}
	for _, step := range steps {
		step()
		if reached() {
			return id, f
		}
	}
	require.FailNow(t, "cannot reach the state", "%s", want)
	return nil, nil
}

var allStates = func() (all []State) {
	for s := range State(len(stateNames)) {
		all = append(all, s)
	}
	return all
}()
