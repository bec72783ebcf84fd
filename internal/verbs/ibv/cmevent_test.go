//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestRejectReason(t *testing.T) {
	for status, want := range map[int32]driver.RejectReason{
		28:                           driver.RejectConsumer,
		8:                            driver.RejectNoService,
		4:                            driver.RejectTimeout,
		33:                           33,
		-int32(syscall.ECONNREFUSED): driver.RejectConsumer, // iWARP
		-int32(syscall.ECONNRESET):   driver.RejectConsumer,
		-int32(syscall.ETIMEDOUT):    driver.RejectTimeout,
		-int32(syscall.EPROTO):       driver.RejectNone,
	} {
		assert.Equal(t, want, rejectReason(status), "status %d", status)
	}
}

func TestEventCause(t *testing.T) {
	id := new(cmID)
	for _, c := range []struct {
		ev   cmEvent
		want error
	}{
		{cmEvent{typ: driver.CMAddrError, status: -int32(syscall.ENODEV)}, verbs.ErrNoDevice},
		{cmEvent{typ: driver.CMAddrError}, verbs.ErrNoRoute},
		{cmEvent{typ: driver.CMRouteError, status: -int32(syscall.ETIMEDOUT)}, syscall.ETIMEDOUT},
		{cmEvent{typ: driver.CMUnreachable, status: -int32(syscall.ETIMEDOUT)}, syscall.ETIMEDOUT},
		{cmEvent{typ: driver.CMUnreachable}, syscall.ETIMEDOUT},
		{cmEvent{typ: driver.CMConnectError, status: -int32(syscall.EINVAL)}, verbs.ErrPeerGone},
		{cmEvent{typ: driver.CMConnectError, status: -int32(syscall.EINVAL)}, syscall.ECONNRESET},
		{cmEvent{typ: driver.CMConnectError, status: -int32(syscall.ENOMEM)}, verbs.ErrNoMemory},
		{cmEvent{typ: driver.CMRejected, status: 8}, syscall.ECONNREFUSED},
		{cmEvent{typ: driver.CMRejected, status: 28}, syscall.ECONNREFUSED},
		{cmEvent{typ: driver.CMRejected, status: 4}, syscall.ETIMEDOUT},
		{cmEvent{typ: driver.CMRejected, status: 10}, verbs.ErrTryAgain},
		{cmEvent{typ: driver.CMRejected, status: 1}, verbs.ErrTryAgain},
		{cmEvent{typ: driver.CMRejected, status: 3}, verbs.ErrTryAgain},
		{cmEvent{typ: driver.CMRejected, status: 6}, verbs.ErrTryAgain},
		{cmEvent{typ: driver.CMRejected, status: 7}, verbs.ErrTryAgain},
		{cmEvent{typ: driver.CMRejected, status: 10}, syscall.ECONNREFUSED},
		{cmEvent{typ: driver.CMConnectError, status: -int32(syscall.EINVAL)}, verbs.ErrTryAgain},
		{cmEvent{typ: driver.CMDeviceRemoval}, verbs.ErrNoDevice},
	} {
		assert.ErrorIs(t, id.cause(&c.ev), c.want, "%v %d", c.ev.typ, c.ev.status)
	}
	for _, typ := range []driver.CMEventType{driver.CMAddrResolved, driver.CMEstablished, driver.CMDisconnected} {
		assert.NoError(t, id.cause(&cmEvent{typ: typ}))
	}
}

// Only what another attempt may get right is tried again.
func TestNotTriedAgain(t *testing.T) {
	id := new(cmID)
	for _, status := range []int32{8, 28, 4, 33} {
		assert.NotErrorIs(t, id.cause(&cmEvent{typ: driver.CMRejected, status: status}), verbs.ErrTryAgain, "status %d", status)
	}
	err := id.notUp(fmt.Errorf("%w: QP 0x11 to RTR: %w", errNotReady, failed("ibv_modify_qp", syscall.EINVAL)))
	assert.NotErrorIs(t, err, verbs.ErrTryAgain, "the device's own fault")
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	gone := failed("rdma_init_qp_attr", syscall.EINVAL)
	assert.ErrorIs(t, id.notUp(gone), verbs.ErrTryAgain)
	id.state = cmAccepting
	assert.ErrorIs(t, id.confirmed(gone), verbs.ErrTryAgain, "of an answer that the application confirms")
	assert.Equal(t, cmFailed, id.state)
}

// A dialer that has left is not this end's failure, and a dialer's own QP has none to blame.
func TestNoAttributes(t *testing.T) {
	gone := failed("rdma_init_qp_attr", syscall.EINVAL)
	assert.NotErrorIs(t, new(cmID).noAttributes(gone), verbs.ErrPeerGone)
	child := &cmID{listener: new(cmID)}
	assert.ErrorIs(t, child.noAttributes(gone), verbs.ErrPeerGone)
	assert.ErrorIs(t, child.noAttributes(gone), syscall.EINVAL)
	assert.NotErrorIs(t, child.noAttributes(failed("rdma_init_qp_attr", syscall.ENOMEM)), verbs.ErrPeerGone)

	// It may leave after its QP was made, too.
	lib := fakeVerbs(t)
	child.ch = newCMChannel(lib, &librdmacm{initQPAttr: failingCall(t, ^uintptr(0), syscall.EINVAL)})
	q := &qp{ctx: fakeContext(t, lib, verbs.TransportRoCE)}
	assert.ErrorIs(t, q.bringUp(child, 1, 0, 0, 0, false), verbs.ErrPeerGone)
}

// What a peer does that has read the confirmation comes after the connection, although the
// call that confirmed has yet to return.
func TestDisconnectedWhileConfirming(t *testing.T) {
	var told []driver.CMEventType
	id := &cmID{ch: new(cmChannel), handle: 1, state: cmAccepting, confirming: true}
	id.events.Init(func(ev driver.CMEvent) { told = append(told, ev.Type) })
	id.onEvent(&cmEvent{typ: driver.CMDisconnected})
	assert.Equal(t, cmAccepting, id.state)
	assert.Empty(t, told)
	id.order.running = true // by nobody, so no job runs
	assert.NoError(t, id.confirmed(nil))
	assert.Equal(t, cmConnected, id.state)
	assert.Equal(t, []driver.CMEventType{driver.CMEstablished}, told)
	assert.Len(t, id.order.jobs, 1, "which tells of the end")
}

// A peer that has left was connected, although its confirmation has not come.
func TestDisconnectedBeforeConfirmed(t *testing.T) {
	lib := needVerbs(t)
	for transport, want := range map[verbs.Transport][]driver.CMEventType{
		verbs.TransportIB:    {driver.CMEstablished, driver.CMDisconnected},
		verbs.TransportIWARP: {driver.CMDisconnected}, // whose kernel tells both
	} {
		var told []driver.CMEventType
		id := &cmID{
			ch: newCMChannel(lib, &librdmacm{disconnect: libc(t, "isatty")}), handle: 1, state: cmAccepting,
			ctx: &devContext{dev: &device{transport: transport}},
		}
		id.events.Init(func(ev driver.CMEvent) { told = append(told, ev.Type) })
		id.onEvent(&cmEvent{typ: driver.CMDisconnected})
		assert.Equal(t, want, told, "%v", transport)
	}
}

// Who has told the kernel that data has arrived ends a connection when the kernel has seen it, so that
// it does not go on repeating the answer.
func TestEndSettlesNotice(t *testing.T) {
	lib := needVerbs(t)
	ends := map[string]func(*cmID) error{"disconnect": (*cmID).Disconnect, "close": (*cmID).Close}
	for name, end := range ends {
		for _, follows := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %v", name, follows), func(t *testing.T) {
				succeeds := libc(t, "isatty")
				synctest.Test(t, func(t *testing.T) {
					id := &cmID{
						ch:     newCMChannel(lib, &librdmacm{notify: succeeds, disconnect: succeeds, destroyID: succeeds}),
						handle: 1 << 20, state: cmAccepting, // no descriptor
						ctx: &devContext{dev: &device{transport: verbs.TransportIB}},
					}
					id.events.Init(func(driver.CMEvent) {})
					require.NoError(t, id.Notify())
					ended := make(chan error, 1)
					began := time.Now()
					go func() { ended <- end(id) }()
					synctest.Wait()
					require.Empty(t, ended, "it does not wait")
					want := notifyTime
					if follows {
						want = notifyDelay / 2 // the kernel was told at once
						time.Sleep(want)
						id.onEvent(&cmEvent{typ: driver.CMEstablished})
					}
					require.NoError(t, <-ended)
					require.Equal(t, want, time.Since(began))
				})
			})
		}
	}
}

// A confirmation may come while rdma_disconnect, which is too early, says nothing. It is said again.
func TestConfirmedWhileDisconnecting(t *testing.T) {
	lib := needVerbs(t)
	var id *cmID
	calls := 0
	id = &cmID{
		ch: newCMChannel(lib, &librdmacm{disconnect: purego.NewCallback(func() uintptr {
			if calls++; calls == 1 {
				id.onEvent(&cmEvent{typ: driver.CMEstablished})
			}
			return 0
		})}),
		handle: 1, state: cmAccepting,
		ctx: &devContext{dev: &device{transport: verbs.TransportIB}},
	}
	var told []driver.CMEventType
	id.events.Init(func(ev driver.CMEvent) { told = append(told, ev.Type) })
	require.NoError(t, id.Disconnect())
	require.Equal(t, 2, calls)
	require.Equal(t, []driver.CMEventType{driver.CMEstablished}, told, "the kernel tells of the end")
	require.Equal(t, cmConnected, id.state)
}

// A peer that ends before our confirmation has reached it takes its answer back. Where the
// connection stands by then, that is its end.
func TestTakenBackWhenConnected(t *testing.T) {
	lib := needVerbs(t)
	for _, typ := range []driver.CMEventType{driver.CMRejected, driver.CMUnreachable, driver.CMConnectError} {
		var told []driver.CMEvent
		id := &cmID{ch: newCMChannel(lib, &librdmacm{disconnect: libc(t, "isatty")}), handle: 1, state: cmConnected}
		id.events.Init(func(ev driver.CMEvent) { told = append(told, ev) })
		id.onEvent(&cmEvent{typ: typ, status: int32(driver.RejectConsumer)})
		assert.Equal(t, []driver.CMEvent{{Type: driver.CMDisconnected, ID: id}}, told, "%v", typ)
		assert.Equal(t, cmDisconnected, id.state, "%v", typ)
		id.onEvent(&cmEvent{typ: typ})
		id.onEvent(&cmEvent{typ: driver.CMDisconnected})
		assert.Len(t, told, 1, "%v: it ends once", typ)
	}
}

// The same while the call that confirms is under way, whether or not the confirmation went.
func TestTakenBackWhileConfirming(t *testing.T) {
	for _, sent := range []error{nil, failed("rdma_establish", syscall.EINVAL)} {
		var told []driver.CMEvent
		id := &cmID{handle: 1, state: cmAccepting, confirming: true}
		id.events.Init(func(ev driver.CMEvent) { told = append(told, ev) })
		id.onEvent(&cmEvent{typ: driver.CMRejected, status: int32(driver.RejectConsumer)})
		assert.ErrorIs(t, id.confirmed(sent), verbs.ErrTryAgain, "%v", sent)
		assert.Equal(t, cmFailed, id.state)
		require.Len(t, told, 1)
		assert.Equal(t, driver.CMRejected, told[0].Type)
		assert.ErrorIs(t, told[0].Err, verbs.ErrTryAgain)
	}
}

// An answer that was taken back before it was confirmed has delivered nothing.
func TestAcceptOfWhatWasTakenBack(t *testing.T) {
	lib := needVerbs(t)
	for _, typ := range []driver.CMEventType{driver.CMRejected, driver.CMUnreachable} {
		for state, again := range map[cmState]bool{cmResponded: true, cmConnecting: false} {
			id := &cmID{ch: newCMChannel(lib, &librdmacm{}), handle: 1, state: state}
			id.events.Init(func(driver.CMEvent) {})
			id.onEvent(&cmEvent{typ: typ})
			err := id.Accept(nil)
			if again {
				assert.ErrorIs(t, err, verbs.ErrTryAgain, "%v while %v", typ, state)
			} else {
				assert.ErrorIs(t, err, verbs.ErrState, "%v while %v", typ, state)
			}
		}
	}
}

func TestMilliseconds(t *testing.T) {
	assert.EqualValues(t, 1, milliseconds(0))
	assert.EqualValues(t, 1, milliseconds(time.Microsecond))
	assert.EqualValues(t, 2000, milliseconds(2*time.Second))
	assert.EqualValues(t, 1<<31-1, milliseconds(1<<62))
}

// Close destroys the id before it returns, also where it is called by who is told how a call has ended:
// he may need the port again.
func TestCloseWhereItIsTold(t *testing.T) {
	lib := needVerbs(t)
	destroyed := 0
	succeeds := succeedingCall()
	ch := newCMChannel(lib, &librdmacm{
		establish: succeeds, disconnect: succeeds, resolveRoute: failingCall(t, ^uintptr(0), syscall.EINVAL),
		destroyID: purego.NewCallback(func() uintptr {
			destroyed++
			return 0
		}),
	})
	for name, c := range map[string]struct {
		state cmState
		do    func(*cmID)
	}{
		"an event": {cmConnecting, func(id *cmID) {
			id.onEvent(&cmEvent{typ: driver.CMRejected, status: int32(driver.RejectConsumer)})
		}},
		"Accept":       {cmResponded, func(id *cmID) { assert.NoError(t, id.Accept(nil)) }},
		"Disconnect":   {cmAccepting, func(id *cmID) { assert.NoError(t, id.Disconnect()) }},
		"ResolveRoute": {cmAddrResolved, func(id *cmID) { assert.NoError(t, id.ResolveRoute(time.Minute)) }},
	} {
		t.Run(name, func(t *testing.T) {
			destroyed = 0
			id := &cmID{ch: ch, handle: 1, state: c.state, ctx: &devContext{dev: &device{transport: verbs.TransportIB}}}
			closed := make(chan int, 1)
			id.events.Init(func(driver.CMEvent) {
				assert.NoError(t, id.Close())
				closed <- destroyed
			})
			c.do(id)
			assert.Equal(t, 1, <-closed)
		})
	}
}

// A device may break down while an event of one of its ids is acted upon. That is the last that the id tells.
func TestDeviceLostDuringEvent(t *testing.T) {
	lib := fakeVerbs(t)
	var id *cmID
	lose := purego.NewCallback(func() uintptr {
		id.onEvent(&cmEvent{typ: driver.CMDeviceRemoval})
		return 0
	})
	lib.modifyQP = succeedingCall()
	ch := newCMChannel(lib, &librdmacm{establish: lose, disconnect: lose, initQPAttr: succeedingCall()})
	ctx := fakeContext(t, lib, verbs.TransportRoCE)
	handle := addressOf(&cMemory[cQP](t, 1)[0])
	for typ, state := range map[driver.CMEventType]cmState{
		driver.CMConnectResponse: cmConnecting,
		driver.CMDisconnected:    cmAccepting,
	} {
		var told []driver.CMEventType
		id = &cmID{ch: ch, handle: 1, state: state, ctx: ctx}
		id.qp = &qp{ctx: ctx, id: id, handle: handle, c: at[cQP](handle)}
		id.events.Init(func(ev driver.CMEvent) { told = append(told, ev.Type) })
		id.onEvent(&cmEvent{typ: typ})
		assert.Equal(t, []driver.CMEventType{driver.CMDeviceRemoval}, told, "%v", typ)
		assert.Equal(t, cmFailed, id.state, "%v", typ)
	}
}
