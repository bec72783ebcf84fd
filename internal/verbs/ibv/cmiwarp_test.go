//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// What rdma_connect says of the peer becomes an event, on iWARP only; what it says of the
// call stays an error.
func TestFailedAtOnce(t *testing.T) {
	id := &cmID{ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}}}
	for errno, want := range map[syscall.Errno]driver.CMEvent{
		syscall.ECONNREFUSED: {Type: driver.CMRejected, Reason: driver.RejectNoService},
		syscall.ECONNRESET:   {Type: driver.CMRejected},
		syscall.ETIMEDOUT:    {Type: driver.CMUnreachable},
		syscall.EHOSTUNREACH: {Type: driver.CMUnreachable},
	} {
		ev, ok := id.failedAtOnce(failed("rdma_connect", errno))
		assert.True(t, ok, "%v", errno)
		assert.Equal(t, want.Type, ev.Type, "%v", errno)
		assert.Equal(t, want.Reason, ev.Reason, "%v", errno)
		assert.ErrorIs(t, ev.Err, errno)
	}
	for _, err := range []error{failed("rdma_connect", syscall.ENOMEM), failed("rdma_connect", syscall.EINVAL), errors.New("other")} {
		_, ok := id.failedAtOnce(err)
		assert.False(t, ok, "%v", err)
	}
	id.ctx.dev.transport = verbs.TransportRoCE
	_, ok := id.failedAtOnce(failed("rdma_connect", syscall.ECONNREFUSED))
	assert.False(t, ok)
}

// TestTellReset: a reset is the answer of the application with some devices, and with others says that there
// is none.
func TestTellReset(t *testing.T) {
	const chelsio = 0x1425
	for _, c := range []struct {
		transport verbs.Transport
		vendor    uint32
		status    syscall.Errno
		want      driver.RejectReason
		text      string
	}{
		{verbs.TransportIWARP, softIWARPVendor, syscall.ECONNRESET, driver.RejectConsumer, "refused by the application"},
		{verbs.TransportIWARP, alibabaVendor, syscall.ECONNRESET, driver.RejectConsumer, "refused by the application"},
		{verbs.TransportIWARP, chelsio, syscall.ECONNRESET, driver.RejectNone, "nobody listens there, or answers"},
		{verbs.TransportIWARP, chelsio, syscall.ECONNREFUSED, driver.RejectConsumer, "refused by the application"},
	} {
		var told []driver.CMEvent
		id := &cmID{ch: new(cmChannel), handle: 1, state: cmConnecting, ctx: &devContext{dev: &device{transport: c.transport}}}
		id.ctx.limits.attr.VendorID = c.vendor
		id.events.Init(func(ev driver.CMEvent) { told = append(told, ev) })
		id.onEvent(&cmEvent{typ: driver.CMRejected, status: -int32(c.status)})
		require.Len(t, told, 1)
		assert.Equal(t, driver.CMRejected, told[0].Type)
		assert.Equal(t, c.want, told[0].Reason, "%#x %v", c.vendor, c.status)
		assert.EqualError(t, told[0].Err, c.text)
		assert.ErrorIs(t, told[0].Err, syscall.ECONNREFUSED)
		assert.Equal(t, cmFailed, id.state)
	}
}

// A Connect that waits for TCP (siw) keeps nobody: it returns at once, others' calls go on, an
// id's Close returns, and the struct and the QP, which the kernel holds, are destroyed when
// the call is over. Who is given up before his call has begun does not make it.
func TestConnectWaitsForTCP(t *testing.T) {
	lib := needVerbs(t)
	goOn := make(chan struct{})
	called, destroyed := make(chan struct{}, 2*hostSlots), make(chan struct{}, 2*hostSlots)
	ch := newCMChannel(lib, &librdmacm{
		connect: purego.NewCallback(func() uintptr {
			called <- struct{}{}
			<-goOn
			return 0
		}),
		destroyID: purego.NewCallback(func() uintptr {
			destroyed <- struct{}{}
			return 0
		}),
		reject: purego.NewCallback(func() uintptr { return 0 }),
	})
	events := make(chan driver.CMEvent, 2*hostSlots)
	connecting := func(timeout time.Duration) *cmID {
		id := &cmID{
			ch: ch, handle: 1, state: cmRouteResolved,
			ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}},
		}
		id.events.Init(func(ev driver.CMEvent) { events <- ev })
		require.NoError(t, id.Connect(&driver.ConnParam{QPNum: 17}, timeout))
		return id
	}
	var ids []*cmID
	for range hostSlots {
		ids = append(ids, connecting(time.Minute))
		<-called
	}
	require.NoError(t, ch.call("rdma_reject", ch.lib.reject), "beside them")
	require.NoError(t, ids[0].Close())
	ids[1].onEvent(&cmEvent{typ: driver.CMEstablished})
	assert.Equal(t, driver.CMEstablished, (<-events).Type)

	late := connecting(time.Millisecond)
	assert.Equal(t, driver.CMUnreachable, (<-events).Type)
	<-late.overTCP
	closed := connecting(time.Minute)
	require.NoError(t, closed.Close())
	<-closed.overTCP
	<-destroyed
	given := connecting(0) // by who has no deadline, and is cancelled
	given.awaitTCP()
	require.NoError(t, given.Close())
	<-destroyed
	assert.Empty(t, called, "nobody waits for those")

	qpMayGo := make(chan struct{})
	go func() {
		ids[0].awaitTCP() // as its QP's Close does
		close(qpMayGo)
	}()
	select {
	case <-qpMayGo:
		t.Error("the kernel holds the QP")
	case <-time.After(10 * time.Millisecond):
	}
	assert.Empty(t, destroyed, "it is in use")
	close(goOn)
	<-qpMayGo
	<-destroyed
	for _, id := range ids {
		id.awaitTCP()
	}
	for i, want := range []cmState{cmClosed, cmConnected, cmConnecting} {
		ids[i].mu.Lock()
		assert.Equal(t, want, ids[i].state)
		assert.Equal(t, want == cmConnecting, ids[i].timer != nil, "%v", want)
		ids[i].mu.Unlock()
	}
	assert.Empty(t, called)
	for _, id := range ids[2:] {
		id.stopTimer()
	}
}

// Of a crowd no more than mostUnanswered ask one listener at a time; whoever is answered, is
// refused, is too late or gives up makes room for the next, and other listeners are asked
// meanwhile.
func TestCrowdAsksInTurn(t *testing.T) {
	lib := needVerbs(t)
	const crowd = 2 * mostUnanswered
	called := make(chan struct{}, 2*crowd)
	ch := newCMChannel(lib, &librdmacm{
		connect: purego.NewCallback(func() uintptr {
			called <- struct{}{}
			return 0
		}),
		destroyID:  purego.NewCallback(func() uintptr { return 0 }),
		disconnect: purego.NewCallback(func() uintptr { return 0 }),
		reject:     purego.NewCallback(func() uintptr { return 0 }),
	})
	ch.askPatience = time.Hour
	sink := func(driver.CMEvent) {}
	connecting := func(port uint16, timeout time.Duration) *cmID {
		id := &cmID{
			ch: ch, handle: 1, state: cmRouteResolved, remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port),
			ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}},
		}
		id.events.Init(sink)
		require.NoError(t, id.Connect(&driver.ConnParam{QPNum: 17}, timeout))
		return id
	}
	asked := func(id *cmID) bool {
		id.mu.Lock()
		defer id.mu.Unlock()
		return id.asking
	}
	var ids []*cmID
	next := func() (id *cmID) { // one that has asked
		require.Eventually(t, func() bool {
			i := slices.IndexFunc(ids, asked)
			if i >= 0 {
				id = ids[i]
				ids = slices.Delete(ids, i, i+1)
			}
			return i >= 0
		}, 30*time.Second, time.Millisecond)
		return id
	}
	for range crowd {
		ids = append(ids, connecting(1, time.Hour))
	}
	for range mostUnanswered {
		<-called
	}
	n := 0
	for _, id := range ids {
		if asked(id) {
			n++
		}
	}
	assert.Equal(t, mostUnanswered, n, "no more may ask, however long one waits")
	assert.Empty(t, called)
	other := connecting(2, time.Hour)
	<-called

	done := []*cmID{other}
	for _, end := range []func(*cmID){
		func(id *cmID) { id.onEvent(&cmEvent{typ: driver.CMEstablished}) },
		func(id *cmID) { id.onEvent(&cmEvent{typ: driver.CMUnreachable}) },
		func(id *cmID) { id.onEvent(&cmEvent{typ: driver.CMRejected}) },
		func(id *cmID) { id.timedOut(time.Hour) },
		func(id *cmID) { id.notConnected(failed("rdma_connect", syscall.ECONNREFUSED)) },
		func(id *cmID) { assert.NoError(t, id.Close()) },
	} {
		id := next()
		end(id)
		assert.False(t, asked(id))
		<-called
		done = append(done, id)
	}
	ch.askPatience = time.Millisecond
	told := make(chan driver.CMEvent, 1)
	sink = func(ev driver.CMEvent) { told <- ev }
	done = append(done, connecting(1, 0))
	ev := <-told
	assert.Equal(t, driver.CMConnectError, ev.Type)
	assert.ErrorIs(t, ev.Err, verbs.ErrTryAgain, "without a time of its own, and without its turn")

	for _, id := range append(ids, done...) { // also those that have not asked
		if err := id.Close(); err != nil {
			assert.ErrorIs(t, err, verbs.ErrClosed)
		}
		id.awaitTCP()
	}
	assert.Empty(t, ch.unanswered.hosts)
	assert.Empty(t, ch.connects.hosts)
}

// What rdma_connect over TCP says comes as an event, when somebody still waits for it.
func TestConnectOverTCPFails(t *testing.T) {
	lib := needVerbs(t)
	ch := newCMChannel(lib, &librdmacm{connect: purego.NewCallback(func() uintptr { return ^uintptr(0) })})
	id := &cmID{
		ch: ch, handle: 1, state: cmRouteResolved,
		ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}},
	}
	events := make(chan driver.CMEvent, 2)
	id.events.Init(func(ev driver.CMEvent) { events <- ev })
	require.NoError(t, id.Connect(&driver.ConnParam{QPNum: 17}, time.Minute))
	ev := <-events
	// errno is whatever it was
	assert.Contains(t, []driver.CMEventType{driver.CMConnectError, driver.CMRejected, driver.CMUnreachable}, ev.Type)
	assert.Error(t, ev.Err)
	id.awaitTCP()
	id.mu.Lock()
	defer id.mu.Unlock()
	assert.Equal(t, cmFailed, id.state)
	assert.Nil(t, id.timer)
}

// Who is told so may close the QP and the id at once, as a program of C does where it reads the event.
func TestCloseWhereConnectOverTCPFails(t *testing.T) {
	lib := fakeVerbs(t)
	lib.destroyQP = succeedingCall()
	destroyed := 0
	ch := newCMChannel(lib, &librdmacm{
		connect: failingCall(t, ^uintptr(0), syscall.ECONNREFUSED),
		destroyID: purego.NewCallback(func() uintptr {
			destroyed++
			return 0
		}),
	})
	ctx := fakeContext(t, lib, verbs.TransportIWARP)
	id := &cmID{ch: ch, handle: 1, state: cmRouteResolved, ctx: ctx}
	id.qp = &qp{ctx: ctx, pd: &pd{ctx: ctx}, id: id, handle: 1, sendCQ: &cq{}, recvCQ: &cq{}}
	q := id.qp
	closed := make(chan error, 1)
	id.events.Init(func(driver.CMEvent) {
		err := errors.Join(q.Close(), id.Close())
		assert.Equal(t, 1, destroyed, "when Close returns")
		closed <- err
	})
	require.NoError(t, id.Connect(nil, time.Minute))
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("Close of the QP waits for the goroutine that it is on")
	}
}

// A port that the kernel chose and TCP has is another one the next time; one that the user
// chose is not.
func TestPortTaken(t *testing.T) {
	for _, c := range []struct {
		errno     syscall.Errno
		own, want bool
	}{
		{syscall.EADDRINUSE, false, true},
		{syscall.EADDRNOTAVAIL, false, true},
		{syscall.EADDRINUSE, true, false},
		{syscall.ENOMEM, false, false},
	} {
		id := &cmID{state: cmConnecting, port: c.own, ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}}}
		events := make(chan driver.CMEvent, 1)
		id.events.Init(func(ev driver.CMEvent) { events <- ev })
		id.notConnected(failed("rdma_connect", c.errno))
		ev := <-events
		assert.Equal(t, driver.CMConnectError, ev.Type)
		assert.ErrorIs(t, ev.Err, c.errno)
		assert.Equal(t, c.want, errors.Is(ev.Err, verbs.ErrTryAgain), "%+v", c)
	}
}

// A listener that is slow to answer is asked again; one that TCP has not reached is not, and with devices
// other than siw nobody knows which of the two it was.
func TestSlowToAnswer(t *testing.T) {
	for _, c := range []struct {
		vendor  uint32
		reached bool
		again   bool
	}{{softIWARPVendor, true, true}, {softIWARPVendor, false, false}, {0x1425, true, false}} {
		id := &cmID{ch: newCMChannel(needVerbs(t), nil), handle: 1, state: cmConnecting, ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}}}
		id.ctx.limits.attr.VendorID = c.vendor
		events := make(chan driver.CMEvent, 1)
		id.events.Init(func(ev driver.CMEvent) { events <- ev })
		if c.reached {
			id.overTCP = make(chan struct{})
			id.onEvent(&cmEvent{typ: driver.CMUnreachable, status: -int32(syscall.ETIMEDOUT)})
		} else {
			id.notConnected(failed("rdma_connect", syscall.ETIMEDOUT))
		}
		ev := <-events
		assert.Equal(t, driver.CMUnreachable, ev.Type)
		assert.ErrorIs(t, ev.Err, syscall.ETIMEDOUT)
		assert.Equal(t, c.again, errors.Is(ev.Err, verbs.ErrTryAgain))
	}
}
