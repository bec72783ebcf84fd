//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// devContext is verbs.Context. One that librdmacm has opened is shared by all ids
// on the device and never closed by us.
type devContext struct {
	lib    *libibverbs
	dev    *device
	handle uintptr    // struct ibv_context
	cm     *cmChannel // of a shared context only
	limits limits
	async  *asyncEvents
	begin  slots   // of calls that make or change objects
	ready  slots   // of calls that take QPs of connections to RTS
	end    slots   // of calls that destroy objects
	plugCQ uintptr // of soft-iWARP; see plug

	retired  sync.Once
	plainQPs atomic.Bool   // the provider has refused the extended verbs
	vector   atomic.Uint32 // of the completion channel that was made last

	vectorsOnce sync.Once
	vectors     []uint32 // to choose from
	channels    sharedChannels
	ownChannels atomic.Int32 // compChannels that use none of those

	users object.Users // what was made from the context
	mems  object.Memories[*memory]

	mu   sync.Mutex
	qps  map[uintptr]*qp // by their C structs, which asynchronous events name
	cqs  map[uintptr]*cq
	srqs map[uintptr]*srq
}

func newContext(lib *libibverbs, dev *device, handle uintptr, cm *cmChannel) (*devContext, error) {
	c := &devContext{
		lib: lib, dev: dev, handle: handle, cm: cm,
		begin: newSlots(deviceSlots), ready: newSlots(deviceReadySlots), end: newSlots(deviceEndSlots),
		qps: map[uintptr]*qp{}, cqs: map[uintptr]*cq{}, srqs: map[uintptr]*srq{},
	}
	var err error
	if c.limits, err = c.queryLimits(); err != nil {
		return nil, err
	}
	if c.isSoftIWARP() {
		if err := c.plug(); err != nil {
			return nil, err
		}
	}
	if err = startAsync(c); err != nil {
		c.unplug()
		return nil, err
	}
	return c, nil
}

func (c *devContext) Device() verbs.Device { return c.dev }

func (c *devContext) ops() *cContextOps { return &at[cContext](c.handle).ops }

// makes is callErrno of a verb that makes an object, in a slot.
//
//go:uintptrescapes
func (c *devContext) makes(fn uintptr, args ...uintptr) (uintptr, syscall.Errno) {
	c.begin.take()
	defer c.begin.give()
	return c.lib.callErrno(fn, args...)
}

// changes is callInt of a verb that changes an object or looks at it, in a slot.
//
//go:uintptrescapes
func (c *devContext) changes(fn uintptr, args ...uintptr) int32 {
	c.begin.take()
	defer c.begin.give()
	return callInt(fn, args...)
}

// ends is callInt of a verb that destroys an object, in a slot.
func (c *devContext) ends(fn, handle uintptr) int32 {
	c.end.take()
	defer c.end.give()
	return callInt(fn, handle)
}

func (c *devContext) AllocPD() (verbs.PD, error) {
	return object.Create(&c.users, func() (verbs.PD, error) {
		r, errno := c.makes(c.lib.allocPD, c.handle)
		if r == 0 {
			return nil, failed("ibv_alloc_pd", errno)
		}
		return &pd{ctx: c, handle: r}, nil
	})
}

func (c *devContext) CreateCompChannel() (verbs.CompChannel, error) {
	return object.Create(&c.users, func() (verbs.CompChannel, error) { return newChannel(c) })
}

func (c *devContext) CreateCQ(cqe int, channel verbs.CompChannel) (verbs.CQ, error) {
	var ch *compChannel
	if channel != nil {
		var ok bool
		if ch, ok = channel.(*compChannel); !ok || ch.ctx != c {
			return nil, fmt.Errorf("%w: completion channel of another context", verbs.ErrInvalid)
		}
	}
	return object.Create(&c.users, func() (verbs.CQ, error) { return newCQ(c, cqe, ch) })
}

func (c *devContext) AllocMemory(size, committed int) (verbs.Memory, error) {
	return object.Create(&c.users, func() (verbs.Memory, error) { return newMemory(c, size, committed) })
}

func (c *devContext) AsyncEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	return c.async.queue.Next(ctx)
}

func (c *devContext) Close() error {
	err := c.users.Close(func(users int) error {
		switch {
		case c.cm != nil:
			return fmt.Errorf("%w: the context belongs to the connection manager", verbs.ErrBusy)
		case users > 0:
			return fmt.Errorf("%w: %d objects of the context exist", verbs.ErrBusy, users)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.async.stop()
	c.unplug()
	return returned("ibv_close_device", callInt(c.lib.closeDevice, c.handle))
}

// lost is called when the device was removed or has broken down, and tells all who
// use it.
func (c *devContext) lost() {
	c.retire()
	if c.cm != nil {
		c.cm.lost(c)
	}
}

// retire is called when the device is of no use any more, before anybody is told. Of a
// device that was removed librdmacm closes the context when the last id is gone: nothing
// may look into it then, the kernel waits until no descriptor of it is open, and the
// address may be the next one's.
func (c *devContext) retire() {
	c.retired.Do(func() {
		if c.cm != nil {
			c.cm.forgetContext(c)
		}
		c.async.halt()
		c.async.queue.Raise(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
	})
}

// Objects by their C structs. They are forgotten before they are destroyed: an
// address may be another object's as soon as it is free.

func (c *devContext) addQP(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.qps[q.handle] = q
}

func (c *devContext) forgetQP(q *qp) {
	c.mu.Lock()
	delete(c.qps, q.handle)
	c.mu.Unlock()
	c.async.queue.Forget(func(ev verbs.AsyncEvent) bool { return ev.QP == q })
}

func (c *devContext) addCQ(q *cq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cqs[q.handle] = q
}

func (c *devContext) forgetCQ(q *cq) {
	c.mu.Lock()
	delete(c.cqs, q.handle)
	c.mu.Unlock()
	c.async.queue.Forget(func(ev verbs.AsyncEvent) bool { return ev.CQ == q })
}

func (c *devContext) addSRQ(s *srq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.srqs[s.handle] = s
}

func (c *devContext) forgetSRQ(s *srq) {
	c.mu.Lock()
	delete(c.srqs, s.handle)
	c.mu.Unlock()
	c.async.queue.Forget(func(ev verbs.AsyncEvent) bool { return ev.SRQ == s })
}
