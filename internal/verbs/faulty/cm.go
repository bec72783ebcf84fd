package faulty

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/event"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// CMID is a driver.CMID over another, whose events come late, in their order.
type CMID struct {
	driver.CMID
	d      *Driver
	self   driver.CMID // the CMID as its user has it
	events event.Queue

	mu    sync.Mutex
	dice  *dice
	apart bool // from TCP, of which the device has its ports
	asked bool // it came with a request
	heard bool // Notify has said that data has arrived

	unconfirmed *driver.CMEvent // what comes of that

	peerLost atomic.Bool
}

// SetOptions implements driver.CMID.
func (id *CMID) SetOptions(opts driver.CMOptions) error {
	id.mu.Lock()
	id.apart = opts.ApartFromTCP && id.d.tcpPorts.Load()
	id.mu.Unlock()
	return id.CMID.SetOptions(opts)
}

// checkPorts fails where a device of iWARP fails.
func (id *CMID) checkPorts() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.apart {
		return fmt.Errorf("%s: %w", id.d.device, verbs.ErrTCPPorts)
	}
	return nil
}

// A sharer is a CMID over one that is a driver.ListenSharer.
type sharer struct {
	*CMID
	below driver.ListenSharer
}

func (s sharer) SetCompanion(f *os.File) error { return s.below.SetCompanion(f) }
func (s sharer) Companion() *os.File           { return s.below.Companion() }

// CreateID implements driver.Driver.
func (d *Driver) CreateID(device string, sink driver.CMSink) (driver.CMID, error) {
	if err := d.serves(device); err != nil {
		return nil, err
	}
	if err := d.ask(CreateID); err != nil {
		return nil, err
	}
	id := d.newID(sink)
	below, err := d.under.CreateID(d.device, id.deliver)
	if err != nil {
		return nil, err
	}
	return id.over(below), nil
}

func (d *Driver) newID(sink driver.CMSink) *CMID {
	id := &CMID{d: d, dice: d.newDice()}
	id.events.Init(sink)
	return id
}

// over completes an id and returns it as its user is to have it.
func (id *CMID) over(below driver.CMID) driver.CMID {
	id.CMID, id.self = below, id
	if s, ok := below.(driver.ListenSharer); ok {
		id.self = sharer{id, s}
	}
	id.d.made(kindID)
	id.d.mu.Lock()
	id.d.ids[id] = struct{}{}
	id.d.mu.Unlock()
	return id.self
}

// deliver is the sink of the id below.
func (id *CMID) deliver(ev driver.CMEvent) {
	if ev.Type == driver.CMConnectRequest {
		id.request(ev)
		return
	}
	ev.ID = id.self
	if id.judge(&ev) && !id.lost(&ev) && id.events.Push(ev) {
		id.hand()
	}
}

// request passes a request on, together with an id over the new one.
func (id *CMID) request(ev driver.CMEvent) {
	child := id.d.newID(id.events.Sink())
	child.asked = true
	child.events.Hold() // until the request is delivered
	below := ev.ID
	ev.ID, ev.ListenID = child.over(below), id.self
	below.SetSink(child.deliver)
	if !id.judge(&ev) || !id.events.PushThen(ev, func(bool) { child.events.Release() }) {
		_ = ev.ID.Close() // nobody is there to take it
		return
	}
	id.hand()
}

// Hold implements driver.ListenHolder where the device below does.
func (id *CMID) Hold(hold bool) {
	if h, ok := id.CMID.(driver.ListenHolder); ok {
		h.Hold(hold)
	}
}

// Waits implements driver.ListenHolder where the device below does.
func (id *CMID) Waits() bool {
	h, ok := id.CMID.(driver.ListenHolder)
	return !ok || h.Waits()
}

// OnLeave implements driver.ListenHolder where the device below does.
func (id *CMID) OnLeave(f func()) (stop func()) {
	if h, ok := id.CMID.(driver.ListenHolder); ok {
		return h.OnLeave(f)
	}
	return func() {}
}

// judge has a test see the event; false drops it.
func (id *CMID) judge(ev *driver.CMEvent) bool {
	if f := id.d.onEvent.Load(); f != nil {
		return (*f)(ev)
	}
	return true
}

// hand hands over what is queued, on this goroutine of the driver's or later.
func (id *CMID) hand() {
	id.mu.Lock()
	delay := id.dice.delay()
	id.mu.Unlock()
	if delay > 0 {
		time.AfterFunc(delay, id.events.Deliver)
		return
	}
	id.events.Deliver()
}

// remove tells that the device was removed.
func (id *CMID) remove() {
	if id.events.Push(driver.CMEvent{Type: driver.CMDeviceRemoval, ID: id.self, Err: id.d.ask("")}) {
		id.events.Deliver()
	}
}

// Withdraw implements driver.Withdrawer, as far as the id below does. What it says may be
// known before the event that tells it.
func (id *CMID) Withdraw() bool {
	w, ok := id.CMID.(driver.Withdrawer)
	return !ok || w.Withdraw()
}

// SetSink implements driver.CMID.
func (id *CMID) SetSink(sink driver.CMSink) { id.events.SetSink(sink) }

// BindAddr implements driver.CMID.
func (id *CMID) BindAddr(addr netip.AddrPort) error {
	if err := id.d.ask(BindAddr); err != nil {
		return err
	}
	if err := id.checkPorts(); err != nil {
		return err
	}
	return id.CMID.BindAddr(addr)
}

// Listen implements driver.CMID.
func (id *CMID) Listen(backlog int) error {
	if err := id.d.ask(Listen); err != nil {
		return err
	}
	return id.CMID.Listen(backlog)
}

// ResolveAddr implements driver.CMID.
func (id *CMID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	if err := id.d.ask(ResolveAddr); err != nil {
		return err
	}
	if err := id.checkPorts(); err != nil {
		return err
	}
	return id.CMID.ResolveAddr(src, dst, timeout)
}

// ResolveRoute implements driver.CMID.
func (id *CMID) ResolveRoute(timeout time.Duration) error {
	if err := id.d.ask(ResolveRoute); err != nil {
		return err
	}
	return id.CMID.ResolveRoute(timeout)
}

// Verbs implements driver.CMID.
func (id *CMID) Verbs() verbs.Context {
	if ctx := id.d.contextOf(id.CMID.Verbs()); ctx != nil {
		return ctx
	}
	return nil
}

// CreateQP implements driver.CMID.
func (id *CMID) CreateQP(on verbs.PD, attr *verbs.QPInitAttr) (verbs.QP, error) {
	p, ok := on.(*pd)
	if !ok {
		return nil, fmt.Errorf("the PD is not one of the id's Verbs(): %w", verbs.ErrInvalid)
	}
	return p.createQP(attr, func(attr *verbs.QPInitAttr) (verbs.QP, error) { return id.CMID.CreateQP(p.PD, attr) })
}

// Connect implements driver.CMID.
func (id *CMID) Connect(param *driver.ConnParam, timeout time.Duration) error {
	if err := id.d.ask(Connect); err != nil {
		return err
	}
	return id.CMID.Connect(param, timeout)
}

// Accept implements driver.CMID.
func (id *CMID) Accept(param *driver.ConnParam) error {
	if err := id.d.ask(Accept); err != nil {
		return err
	}
	return id.CMID.Accept(param)
}

// Reject implements driver.CMID.
func (id *CMID) Reject(privateData []byte) error {
	if err := id.d.ask(Reject); err != nil {
		return err
	}
	return id.CMID.Reject(privateData)
}

// Close implements driver.CMID.
func (id *CMID) Close() error {
	id.d.mu.Lock()
	delete(id.d.ids, id)
	id.d.mu.Unlock()
	err := id.d.gone(kindID, id.CMID.Close())
	for _, ev := range id.events.Close() {
		if ev.Type == driver.CMConnectRequest {
			_ = ev.ID.Close() // nobody is there to take it
		}
	}
	return err
}
