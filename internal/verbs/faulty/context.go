package faulty

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// Context is a verbs.Context over another.
type Context struct {
	verbs.Context
	d   *Driver
	dev *device

	keys keys

	mu       sync.Mutex
	qps      map[verbs.QP]*QP
	cqs      map[verbs.CQ]*CQ
	srqs     map[verbs.SRQ]*srq
	channels map[*CompChannel]struct{}
	events   []verbs.AsyncEvent // that did not come from below
	waiting  map[int]context.CancelCauseFunc
	waiter   int
}

func newContext(d *Driver, under verbs.Context) *Context {
	return &Context{
		Context: under, d: d, dev: &device{under.Device(), d},
		qps: map[verbs.QP]*QP{}, cqs: map[verbs.CQ]*CQ{}, srqs: map[verbs.SRQ]*srq{},
		channels: map[*CompChannel]struct{}{}, waiting: map[int]context.CancelCauseFunc{},
	}
}

// Device implements verbs.Context.
func (c *Context) Device() verbs.Device { return c.dev }

// QueryDevice implements verbs.Context.
func (c *Context) QueryDevice() (verbs.DeviceAttr, error) {
	if err := c.d.ask(QueryDevice); err != nil {
		return verbs.DeviceAttr{}, err
	}
	attr, err := c.Context.QueryDevice()
	if c.d.plan.Asynchronous {
		attr.Caps &^= verbs.CapSynchronous
	}
	if c.d.plan.Remote {
		attr.Caps &^= verbs.CapSameHost
	}
	return attr, err
}

// AllocPD implements verbs.Context.
func (c *Context) AllocPD() (verbs.PD, error) {
	if err := c.d.ask(AllocPD); err != nil {
		return nil, err
	}
	under, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	c.d.made(kindPD)
	return &pd{under, c}, nil
}

// AllocMemory implements verbs.Context.
func (c *Context) AllocMemory(size, committed int) (verbs.Memory, error) {
	if err := c.d.ask(AllocMemory); err != nil {
		return nil, err
	}
	under, err := c.Context.AllocMemory(size, committed)
	if err != nil {
		return nil, err
	}
	c.d.made(kindMemory)
	return &memory{under, c.d}, nil
}

type memory struct {
	verbs.Memory
	d *Driver
}

func (m *memory) Commit(n int) error {
	if n > m.Committed() {
		if err := m.d.ask(Commit); err != nil {
			return err
		}
	}
	return m.Memory.Commit(n)
}

func (m *memory) Close() error { return m.d.gone(kindMemory, m.Memory.Close()) }

// CreateCompChannel implements verbs.Context.
func (c *Context) CreateCompChannel() (verbs.CompChannel, error) {
	if err := c.d.ask(Channel); err != nil {
		return nil, err
	}
	under, err := c.Context.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	c.d.made(kindChannel)
	ch := newChannel(c, under)
	c.mu.Lock()
	c.channels[ch] = struct{}{}
	c.mu.Unlock()
	return ch, nil
}

// CreateCQ implements verbs.Context.
func (c *Context) CreateCQ(cqe int, channel verbs.CompChannel) (verbs.CQ, error) {
	if err := c.d.ask(CreateCQ); err != nil {
		return nil, err
	}
	var ch *CompChannel
	var below verbs.CompChannel
	if channel != nil {
		var ok bool
		if ch, ok = channel.(*CompChannel); !ok {
			return nil, fmt.Errorf("%w: completion channel of another device", verbs.ErrInvalid)
		}
		below = ch.CompChannel
	}
	under, err := c.Context.CreateCQ(cqe, below)
	if err != nil {
		return nil, err
	}
	c.d.made(kindCQ)
	q := newCQ(c, under, ch)
	c.mu.Lock()
	c.cqs[under] = q
	c.mu.Unlock()
	return q, nil
}

var errRaised = errors.New("an event was raised above the device")

// AsyncEvent implements verbs.Context.
func (c *Context) AsyncEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		sub, cancel := context.WithCancelCause(ctx)
		c.mu.Lock()
		if len(c.events) > 0 {
			ev := c.events[0]
			c.events = c.events[1:]
			c.mu.Unlock()
			cancel(nil)
			return ev, nil
		}
		c.waiter++
		me := c.waiter
		c.waiting[me] = cancel
		c.mu.Unlock()
		ev, err := c.Context.AsyncEvent(sub)
		c.mu.Lock()
		delete(c.waiting, me)
		c.mu.Unlock()
		cancel(nil)
		switch {
		case errors.Is(err, errRaised):
			continue
		case err != nil:
			return ev, err
		}
		if c.translate(&ev) {
			return ev, nil
		}
	}
}

// translate puts the objects over those that an event names; false if they are being destroyed.
func (c *Context) translate(ev *verbs.AsyncEvent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ev.QP != nil:
		q := c.qps[ev.QP]
		ev.QP = q
		return q != nil
	case ev.CQ != nil:
		q := c.cqs[ev.CQ]
		ev.CQ = q
		return q != nil
	case ev.SRQ != nil:
		s := c.srqs[ev.SRQ]
		ev.SRQ = s
		return s != nil
	}
	return true
}

func (c *Context) raise(ev verbs.AsyncEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, ev)
	for _, cancel := range c.waiting {
		cancel(errRaised)
	}
}

// remove is the end of the device.
func (c *Context) remove() {
	c.raise(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
	c.mu.Lock()
	var qps []*QP
	for _, q := range c.qps {
		qps = append(qps, q)
	}
	var channels []*CompChannel
	for ch := range c.channels {
		channels = append(channels, ch)
	}
	c.mu.Unlock()
	for _, q := range qps {
		q.toError()
	}
	for _, ch := range channels {
		ch.gone.Store(true)
		ch.wake()
	}
}

// Close implements verbs.Context.
func (c *Context) Close() error {
	err := c.Context.Close()
	if err == nil {
		c.d.forget(c)
	}
	return err
}
