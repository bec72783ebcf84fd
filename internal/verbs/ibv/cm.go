//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// The connection manager: cm.go is the event channel, cmid.go the id and its
// life, cmresolve.go how it gets its addresses, cmlisten.go a listener,
// cmconnect.go the exchange, cmevent.go what the events do, route.go which device
// leads where, cmqp.go the QP of an id.

// cmChannel is the one rdma_event_channel of the process, with one goroutine,
// parked in the network poller, that reads it. It is never closed. What an event brings
// about is done on other goroutines, for each id in order: the reader waits for nothing.
type cmChannel struct {
	verbs  *libibverbs
	lib    *librdmacm
	handle uintptr // struct rdma_event_channel

	calls      slots                     // of calls for ids
	ready      slots                     // of calls that complete connections
	ends       slots                     // of calls that destroy ids
	routes     slots                     // of rdma_resolve_route
	connects   hostLimit[netip.Addr]     // of rdma_connect on iWARP
	unanswered hostLimit[netip.AddrPort] // of requests on iWARP
	// askPatience is for how long one of these waits for its turn.
	askPatience time.Duration

	mu      sync.Mutex
	ids     map[uintptr]*cmID // by their keys
	lastKey uintptr           // keys are never used again

	contextsMu sync.Mutex
	contexts   map[uintptr]*devContext // by librdmacm's struct ibv_context
}

var (
	theChannel atomic.Pointer[cmChannel]
	channelErr cache[struct{}, *cmChannel] // while there is none
)

// openCM returns the event channel. It fails as long as there is no RDMA device.
func openCM() (*cmChannel, error) {
	if ch := theChannel.Load(); ch != nil {
		return ch, nil
	}
	lib, err := loadCM()
	if err != nil {
		return nil, err
	}
	v, err := loadVerbs()
	if err != nil {
		return nil, err
	}
	return channelErr.get(struct{}{}, func() (*cmChannel, error) {
		if ch := theChannel.Load(); ch != nil {
			return ch, nil
		}
		ch := newCMChannel(v, lib)
		if err := ch.open(); err != nil {
			return nil, err
		}
		theChannel.Store(ch)
		return ch, nil
	})
}

func newCMChannel(v *libibverbs, lib *librdmacm) *cmChannel {
	return &cmChannel{
		verbs: v, lib: lib, ids: map[uintptr]*cmID{}, contexts: map[uintptr]*devContext{},
		calls: newSlots(cmSlots), ready: newSlots(cmReadySlots), ends: newSlots(cmEndSlots), routes: newSlots(routeSlots),
		connects:   hostLimit[netip.Addr]{all: newSlots(connectSlots), most: hostSlots},
		unanswered: hostLimit[netip.AddrPort]{most: mostUnanswered}, askPatience: askPatience,
	}
}

// call is callErrno of a function of librdmacm that returns -1 and sets errno, in a slot.
//
//go:uintptrescapes
func (ch *cmChannel) call(name string, fn uintptr, args ...uintptr) error {
	return ch.callIn(ch.calls, name, fn, args...)
}

// callIn is call in a slot of s.
//
//go:uintptrescapes
func (ch *cmChannel) callIn(s slots, name string, fn uintptr, args ...uintptr) error {
	s.take()
	defer s.give()
	r, errno := ch.verbs.callErrno(fn, args...)
	if int32(r) != 0 {
		return failed(name, errno)
	}
	return nil
}

// destroyID is rdma_destroy_id, in a slot.
func (ch *cmChannel) destroyID(handle uintptr) error {
	ch.ends.take()
	defer ch.ends.give()
	r, errno := ch.verbs.callErrno(ch.lib.destroyID, handle)
	if int32(r) != 0 {
		return failed("rdma_destroy_id", errno)
	}
	return nil
}

func (ch *cmChannel) open() error {
	r, errno := ch.verbs.callErrno(ch.lib.createEventChannel)
	if r == 0 {
		if errno == syscall.ENOENT {
			errno = syscall.ENODEV
		}
		return fmt.Errorf("%w (is the kernel module rdma_ucm loaded, and is there an RDMA device?)", failed("rdma_create_event_channel", errno))
	}
	file, err := pollable(int(at[cEventChannel](r).fd), "rdma-cm-events")
	if err != nil {
		call(ch.lib.destroyEventChannel, r)
		return err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		call(ch.lib.destroyEventChannel, r)
		return err
	}
	ch.handle = r
	go ch.run(file, raw)
	return nil
}

// run hands the events over as they come.
func (ch *cmChannel) run(file *os.File, raw syscall.RawConn) {
	defer file.Close()
	warned := false // of the last one
	for {
		var ev cmEvent
		var errno syscall.Errno
		if err := raw.Read(func(uintptr) bool {
			ev, errno = ch.next()
			return errno != syscall.EAGAIN
		}); err != nil {
			return
		}
		switch errno {
		case 0:
			warned = false
			ch.dispatch(&ev)
		case syscall.EINTR:
		default:
			// One event could not be made sense of, memory is short, or the process is another user's by
			// now. No call returns it, and the channel is the process's, so that no Logger of a listener
			// or dialer is meant.
			if !warned {
				warned = true
				asynclog.Log(slog.Default(), slog.LevelWarn, "rdmanet: an event of the connection manager could not be read",
					"err", failed("rdma_get_cm_event", errno))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// cmEvent is a copy of a struct rdma_cm_event.
type cmEvent struct {
	typ     driver.CMEventType
	status  int32
	key     uintptr // of the id, or of the listening id of a request
	request uintptr // struct rdma_cm_id of a request
	param   driver.ConnParam
	verbs   uintptr
	local   sockaddr
	remote  sockaddr
	err     error // why, of an event that is this end's own and not the kernel's
}

// next takes an event off the channel and acknowledges it. The id it is for
// cannot be destroyed before that, and may be right after.
func (ch *cmChannel) next() (cmEvent, syscall.Errno) {
	var out uintptr
	r, errno := ch.verbs.callErrno(ch.lib.getCMEvent, ch.handle, uintptr(unsafe.Pointer(&out)))
	if int32(r) != 0 {
		if errno == 0 {
			errno = syscall.EIO
		}
		return cmEvent{}, errno
	}
	c := at[cCMEvent](out)
	id := at[cCMID](c.id)
	ev := cmEvent{
		typ:    driver.CMEventType(c.event),
		status: c.status,
		key:    id.context,
		verbs:  id.verbs,
	}
	ev.local, ev.remote = *id.src(), *id.dst()
	switch ev.typ {
	case driver.CMConnectRequest:
		ev.key = at[cCMID](c.listenID).context
		ev.request = c.id
		ev.param = c.conn.param()
	case driver.CMConnectResponse, driver.CMEstablished, driver.CMRejected, driver.CMDisconnected:
		ev.param = c.conn.param()
	}
	call(ch.lib.ackCMEvent, out)
	return ev, 0
}

// param is the parameters with a copy of the private data.
func (c *cConnParam) param() driver.ConnParam {
	p := driver.ConnParam{
		ResponderResources: c.responderResources,
		InitiatorDepth:     c.initiatorDepth,
		FlowControl:        c.flowControl != 0,
		RetryCount:         c.retryCount,
		RNRRetryCount:      c.rnrRetryCount,
		SRQ:                c.srq != 0,
		QPNum:              c.qpNum,
	}
	if c.privateDataLen > 0 && c.privateData != 0 {
		p.PrivateData = append(p.PrivateData, unsafe.Slice((*byte)(pointer(c.privateData)), c.privateDataLen)...)
	}
	return p
}

// dispatch gives the event to its id. It is dropped if the id is gone;
// a request to it is refused.
func (ch *cmChannel) dispatch(ev *cmEvent) {
	ch.mu.Lock()
	id := ch.ids[ev.key]
	ch.mu.Unlock()
	switch {
	case ev.request != 0 && id == nil:
		go func() { _ = ch.destroyID(ev.request) }()
	case ev.request != 0:
		child := id.newRequest(ev)
		child.order.run(child.admit)
	case id != nil:
		id.order.run(func() {
			if ctx, ok := id.Verbs().(*devContext); ok && ev.typ == driver.CMDeviceRemoval {
				ctx.retire()
			}
			id.onEvent(ev)
		})
	}
}

// register makes the id known by a key of its own, which C keeps for us.
func (ch *cmChannel) register(id *cmID) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.lastKey++
	id.key = ch.lastKey
	ch.ids[id.key] = id
}

func (ch *cmChannel) forget(id *cmID) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.ids, id.key)
}

// lost tells the ids on a device that has failed for good. Where the kernel removes a
// device it says so itself, but a device that breaks down says it to nobody but its
// users (ibv_get_async_event(3), DEVICE_FATAL).
func (ch *cmChannel) lost(ctx *devContext) {
	ch.mu.Lock()
	var ids []*cmID
	for _, id := range ch.ids {
		ids = append(ids, id)
	}
	ch.mu.Unlock()
	for _, id := range ids {
		if id.on(ctx) {
			id.onEvent(&cmEvent{typ: driver.CMDeviceRemoval})
		}
	}
}

// forgetContext makes the next id on the device make a Context of its own.
func (ch *cmChannel) forgetContext(ctx *devContext) {
	ch.contextsMu.Lock()
	defer ch.contextsMu.Unlock()
	if ch.contexts[ctx.handle] == ctx {
		delete(ch.contexts, ctx.handle)
	}
}

// contextOf returns the Context of a device that librdmacm has opened.
func (ch *cmChannel) contextOf(handle uintptr) (*devContext, error) {
	ch.contextsMu.Lock()
	defer ch.contextsMu.Unlock()
	if ctx := ch.contexts[handle]; ctx != nil {
		return ctx, nil
	}
	dev, err := describe(ch.verbs, at[cContext](handle).device)
	if err != nil {
		return nil, err
	}
	ctx, err := newContext(ch.verbs, dev, handle, ch)
	if err != nil {
		return nil, err
	}
	ch.contexts[handle] = ctx
	return ctx, nil
}
