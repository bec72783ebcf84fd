package faulty

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// Driver is a driver.Driver with one device, which is another driver's with faults. It is
// not listed and has to be asked for by its name.
type Driver struct {
	name   string
	under  driver.Driver
	device string // of the driver under this one
	plan   Plan

	objects atomic.Uint64 // made so far
	acquire atomic.Pointer[func(string) error]
	close   atomic.Pointer[func() error]
	onEvent atomic.Pointer[func(*driver.CMEvent) bool]
	reuse   atomic.Pointer[func(error)]
	removed atomic.Bool
	// tcpPorts is whether the ports of the device are the system's TCP's, as iWARP's are.
	tcpPorts atomic.Bool

	loseConfirmations atomic.Bool
	notified          atomic.Int64

	live [kinds]atomic.Int64

	mu       sync.Mutex
	contexts map[verbs.Context]*Context // by those under them
	ids      map[*CMID]struct{}
}

var _ driver.Driver = (*Driver)(nil)

// New makes a driver whose device is called name and is the named one of the driver
// under it.
func New(name string, under driver.Driver, device string, plan Plan) *Driver {
	return &Driver{
		name: name, under: under, device: device, plan: plan,
		contexts: map[verbs.Context]*Context{}, ids: map[*CMID]struct{}{},
	}
}

// HaveTCPPorts has the device be one whose ports are the system's TCP's, as iWARP's are. Then
// it is asked for also where none is named.
func (d *Driver) HaveTCPPorts(has bool) { d.tcpPorts.Store(has) }

func (d *Driver) newDice() *dice { return d.plan.dice(d.objects.Add(1)) }

// Name implements driver.Driver.
func (d *Driver) Name() string { return d.name }

// Devices lists nothing: who names no device must not come here.
func (d *Driver) Devices() ([]verbs.Device, error) { return nil, nil }

func (d *Driver) serves(device string) error {
	if device == "" && d.tcpPorts.Load() {
		return nil
	}
	if device != d.name {
		return fmt.Errorf("%w: %q, here is %q only", verbs.ErrNoDevice, device, d.name)
	}
	return nil
}

// Route implements driver.Driver.
func (d *Driver) Route(device string, dst netip.Addr) (driver.Route, error) {
	if err := d.serves(device); err != nil {
		return driver.Route{}, err
	}
	r, err := d.under.Route(d.device, dst)
	r.Device = d.name
	return r, err
}

// Open opens the device, if the driver under this one lists its own.
func (d *Driver) Open() (verbs.Context, error) {
	if err := d.ask(Open); err != nil {
		return nil, err
	}
	devices, err := d.under.Devices()
	for _, under := range devices {
		if under.Name() != d.device {
			continue
		}
		ctx, err := under.Open()
		if err != nil {
			return nil, err
		}
		return d.contextOf(ctx), nil
	}
	return nil, errors.Join(fmt.Errorf("%w: %q is not listed", verbs.ErrNoDevice, d.device), err)
}

// contextOf is the Context over one of the driver's below, the same each time.
func (d *Driver) contextOf(under verbs.Context) *Context {
	if under == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.contexts[under]
	if c == nil {
		c = newContext(d, under)
		d.contexts[under] = c
	}
	return c
}

func (d *Driver) forget(c *Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.contexts, c.Context)
}

// OnEvent has f see each event of the connection manager before its receiver does. f may
// change it, and drops it by returning false. nil takes that back.
func (d *Driver) OnEvent(f func(*driver.CMEvent) bool) {
	if f == nil {
		d.onEvent.Store(nil)
		return
	}
	d.onEvent.Store(&f)
}

// The kinds of objects that are counted.
const (
	kindID = iota
	kindPD
	kindMR
	kindChannel
	kindCQ
	kindQP
	kindSRQ
	kindMemory
	kinds
)

var kindNames = [kinds]string{"id", "PD", "MR", "channel", "CQ", "QP", "SRQ", "memory"}

// Live tells of the objects that were made on the device and not destroyed; "" if there
// are none.
func (d *Driver) Live() string {
	var live []string
	for kind := range d.live {
		if n := d.live[kind].Load(); n != 0 {
			live = append(live, fmt.Sprintf("%s: %d", kindNames[kind], n))
		}
	}
	return strings.Join(live, ", ")
}

// Memories is how many of them are memory, each of which is a mapping.
func (d *Driver) Memories() int { return int(d.live[kindMemory].Load()) }

// made counts an object, and gone one that was destroyed unless that failed.
func (d *Driver) made(kind int) { d.live[kind].Add(1) }

func (d *Driver) gone(kind int, err error) error {
	if err != nil {
		return err
	}
	d.live[kind].Add(-1)
	if f := d.close.Load(); f != nil {
		return (*f)()
	}
	return nil
}

// OnClose has the Close of each object return the error of f, though the object is closed; nil
// takes that back. f may be called by several goroutines at once.
func (d *Driver) OnClose(f func() error) {
	if f == nil {
		d.close.Store(nil)
		return
	}
	d.close.Store(&f)
}

// Remove takes the device away, as hot-unplugging does: all that is made on it is told,
// and nothing new can be made until Restore. Whether an id hears of it before its QP goes
// down is chance; what told, if it is not nil, waits for happens in between.
func (d *Driver) Remove(told func()) {
	d.removed.Store(true)
	d.mu.Lock()
	var contexts []*Context
	for _, c := range d.contexts {
		contexts = append(contexts, c)
	}
	var ids []*CMID
	for id := range d.ids {
		ids = append(ids, id)
	}
	d.mu.Unlock()
	for _, id := range ids {
		id.remove()
	}
	if told != nil {
		told()
	}
	for _, c := range contexts {
		c.remove()
	}
	for _, id := range ids {
		_ = id.CMID.Disconnect() // what is not connected has no peer that misses it
	}
}

// Restore brings the device back. What was made before does not come to life again.
func (d *Driver) Restore() { d.removed.Store(false) }

// device is a device as the one under it, but for its name.
type device struct {
	verbs.Device
	d *Driver
}

func (v *device) Name() string                 { return v.d.name }
func (v *device) Open() (verbs.Context, error) { return v.d.Open() }
