//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/event"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// cmState is where a cmID stands.
type cmState uint8

const (
	cmIdle cmState = iota
	cmBound
	cmListening
	cmResolvingAddr
	cmAddrResolved
	cmResolvingRoute
	cmRouteResolved
	cmConnecting
	cmResponded // CONNECT_RESPONSE was received
	cmRequested // a request that waits for Accept or Reject
	cmAccepting
	cmConnected
	cmDisconnected
	cmFailed
	cmClosed
)

var cmStateNames = [...]string{
	"idle", "bound", "listening", "resolving an address", "address resolved", "resolving a route", "route resolved",
	"connecting", "responded", "requested", "accepting", "connected", "disconnected", "failed", "closed",
}

func (s cmState) String() string { return cmStateNames[s] }

// cmID is driver.CMID.
//
// mu is held around short calls of the library for the id. Around those that may wait,
// or are for its QP, users is raised instead. Neither is while the sink runs.
type cmID struct {
	ch     *cmChannel
	key    uintptr
	device string // the only device it may use, "" if any
	events event.Queue
	order  sequence // what events bring about

	mu        sync.Mutex
	handle    uintptr // struct rdma_cm_id, 0 once the id is closed
	users     int     // calls that use handle without mu
	toDestroy uintptr // the handle that the last user destroys
	state     cmState
	bound     bool
	lost      bool // DEVICE_REMOVAL was told
	opts      driver.CMOptions
	port      bool // its user has chosen the port
	ctx       *devContext
	qp        *qp
	making    bool // CreateQP is at it
	local     netip.AddrPort
	remote    netip.AddrPort
	timer     *time.Timer // bounds ResolveRoute or Connect
	query     query       // of ResolveAddr

	confirming bool     // Accept of an answer is at it
	takenBack  bool     // it failed with an answer that nobody had confirmed
	left       *cmEvent // the DISCONNECTED that came meanwhile

	notice    *notice       // of Notify; nil if there is none, or it is done with
	abandoned chan struct{} // closed when nobody waits for ResolveRoute, or iWARP's Connect, any more
	ipv4      uintptr       // of a wildcard of both families: see bindIPv4
	overTCP   chan struct{} // closed when iWARP's rdma_connect has returned; nil before Connect
	asking    bool          // it counts as unanswered

	asked    driver.ConnParam // of a request
	listener *cmID            // of a request until it is answered
	came     *cmEvent         // of a request that is not admitted yet

	listen listening // of a listening id
}

// CreateID makes an id on the named device, or on whichever the address leads to.
func (ibvDriver) CreateID(name string, sink driver.CMSink) (driver.CMID, error) {
	if sink == nil {
		return nil, fmt.Errorf("no sink for the events: %w", verbs.ErrInvalid)
	}
	if name != "" {
		if _, err := findDevice(name); err != nil {
			return nil, err
		}
	}
	ch, err := openCM()
	if err != nil {
		return nil, err
	}
	id := &cmID{ch: ch, device: name}
	id.events.Init(sink)
	ch.register(id)
	var handle uintptr
	if err := ch.call("rdma_create_id", ch.lib.createID, ch.handle, uintptr(unsafe.Pointer(&handle)), id.key, rdmaPSTCP); err != nil {
		ch.forget(id)
		return nil, err
	}
	id.handle = handle
	return id, nil
}

// call calls a function of librdmacm that returns -1 and sets errno. mu is held, or the
// id is in use.
//
//go:uintptrescapes
func (id *cmID) call(name string, fn uintptr, args ...uintptr) error {
	return id.ch.call(name, fn, args...)
}

// complete is call of what completes a connection.
//
//go:uintptrescapes
func (id *cmID) complete(name string, fn uintptr, args ...uintptr) error {
	return id.ch.callIn(id.ch.ready, name, fn, args...)
}

// useLocked keeps the C struct alive until unuse, and returns it. mu is held, and the id
// is not closed.
func (id *cmID) useLocked() uintptr {
	id.users++
	return id.handle
}

// unuse ends a use. The last one destroys the struct of an id that was closed meanwhile.
func (id *cmID) unuse() error {
	id.mu.Lock()
	id.users--
	var handle uintptr
	if id.users == 0 {
		handle, id.toDestroy = id.toDestroy, 0
	}
	id.mu.Unlock()
	if handle == 0 {
		return nil
	}
	return id.ch.destroyID(handle)
}

// expect fails unless the id is in one of the states. mu is held.
func (id *cmID) expect(op string, states ...cmState) error {
	for _, s := range states {
		if id.state == s {
			return nil
		}
	}
	if id.state == cmClosed {
		return fmt.Errorf("%s: %w", op, verbs.ErrClosed)
	}
	return fmt.Errorf("%s on an id that is %v: %w", op, id.state, verbs.ErrState)
}

func (id *cmID) SetSink(sink driver.CMSink) { id.events.SetSink(sink) }

func (id *cmID) SetOptions(opts driver.CMOptions) error {
	if opts.AckTimeout > 31 {
		return fmt.Errorf("AckTimeout %d is more than 31: %w", opts.AckTimeout, verbs.ErrInvalid)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.expect("SetOptions", cmIdle); err != nil {
		return err
	}
	if err := id.setOptions(opts); err != nil {
		return err
	}
	id.opts = opts
	return nil
}

// setOptions tells the library those options that are its own. mu is held.
func (id *cmID) setOptions(opts driver.CMOptions) error {
	one := int32(1)
	for _, o := range []struct {
		name  string
		wants bool
		opt   uintptr
		value unsafe.Pointer
		size  uintptr
	}{
		{"REUSEADDR", opts.ReuseAddr, rdmaOptionReuseAddr, unsafe.Pointer(&one), unsafe.Sizeof(one)},
		{"AFONLY", opts.AFOnly, rdmaOptionAFOnly, unsafe.Pointer(&one), unsafe.Sizeof(one)},
		{"TOS", opts.TOS != 0, rdmaOptionTOS, unsafe.Pointer(&opts.TOS), 1},
		{"ACK_TIMEOUT", opts.AckTimeout != 0, rdmaOptionAckTimeout, unsafe.Pointer(&opts.AckTimeout), 1},
	} {
		if !o.wants {
			continue
		}
		err := id.call("rdma_set_option "+o.name, id.ch.lib.setOption, id.handle, rdmaOptionID, o.opt, uintptr(o.value), o.size)
		if err != nil && !dispensable(o.opt, err) {
			return err
		}
	}
	return nil
}

// dispensable reports whether a connection does without an option that the kernel does
// not know. Before 5.1 it chose the ACK timeout alone.
func dispensable(opt uintptr, err error) bool {
	return opt == rdmaOptionAckTimeout && (errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL))
}

func (id *cmID) Verbs() verbs.Context {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.ctx == nil {
		return nil
	}
	return id.ctx
}

// on reports whether the id uses a device.
func (id *cmID) on(ctx *devContext) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ctx == ctx
}

func (id *cmID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local
}

func (id *cmID) RemoteAddr() netip.AddrPort {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.remote
}

// refresh reads from the C struct what a call has changed. mu is held.
func (id *cmID) refresh() error {
	c := at[cCMID](id.handle)
	local, remote := c.src().get(), c.dst().get()
	id.local = local
	if remote.IsValid() {
		id.remote = remote
	}
	return id.adopt(c.verbs)
}

// adopt makes the device that the library has found the id's. mu is held.
func (id *cmID) adopt(handle uintptr) error {
	if handle == 0 {
		return nil
	}
	ctx, err := id.ch.contextOf(handle)
	if err != nil {
		return err
	}
	if id.device != "" && ctx.dev.name != id.device {
		return fmt.Errorf("%w: the address leads to device %s, not to %s", verbs.ErrNoRoute, ctx.dev.name, id.device)
	}
	id.ctx = ctx
	return nil
}

// Close destroys the id; if a call that waits uses it, when that returns. Waiting for a
// running sink comes last, so that the sink finds everything closed.
func (id *cmID) Close() error {
	id.settleNotice()
	id.mu.Lock()
	was := id.state
	if was == cmClosed {
		id.mu.Unlock()
		id.events.Close()
		return verbs.ErrClosed
	}
	id.state = cmClosed
	handle, listener, q := id.handle, id.listener, id.qp
	ipv4 := id.ipv4
	id.handle, id.listener, id.qp, id.ipv4 = 0, nil, nil, 0
	held := id.listen.close()
	id.stopTimer()
	id.endNotice()
	id.abandon()
	id.users++
	id.toDestroy = handle
	id.mu.Unlock()

	id.ch.forget(id)
	if was == cmConnected || was == cmAccepting {
		q.disconnect()
		_ = id.call("rdma_disconnect", id.ch.lib.disconnect, handle) // the peer may be gone
	}
	err := id.unuse()
	if ipv4 != 0 {
		err = errors.Join(err, id.ch.destroyID(ipv4))
	}
	if listener != nil {
		listener.answered()
	}
	for _, request := range held {
		err = errors.Join(err, request.ID.Close())
	}
	// A request that waits for its turn in the queue was not given to anybody.
	for _, ev := range id.events.Close() {
		if ev.Type == driver.CMConnectRequest {
			err = errors.Join(err, ev.ID.Close())
		}
	}
	return err
}

// stopTimer ends the wait for an answer. mu is held.
func (id *cmID) stopTimer() {
	id.endAsking()
	if id.timer != nil {
		id.timer.Stop()
		id.timer = nil
	}
}
