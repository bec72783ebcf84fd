//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// feed has the channel's reader read the events that are sent to the channel that it returns.
func feed(t *testing.T, ch *cmChannel) chan<- cCMEvent {
	t.Helper()
	events := make(chan cCMEvent)
	ids := cMemory[cCMID](t, 1)
	event := &cMemory[cCMEvent](t, 1)[0]
	ch.lib.getCMEvent = purego.NewCallback(func(_ uintptr, out *uintptr) uintptr {
		ev, open := <-events
		if !open {
			return ^uintptr(0)
		}
		ids[0] = cCMID{context: ev.id} // in which the test has the key
		*event = ev
		event.id = addressOf(&ids[0])
		*out = addressOf(event)
		return 0
	})
	ch.lib.ackCMEvent = purego.NewCallback(func() uintptr { return 0 })
	stop := readEvents(t, ch)
	t.Cleanup(func() {
		close(events) // a file is not closed while it is read
		stop()
	})
	return events
}

// readEvents runs the channel's reader until stop is called, which no call of rdma_get_cm_event may hold up.
func readEvents(t *testing.T, ch *cmChannel) (stop func()) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	raw, err := r.SyscallConn()
	require.NoError(t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		ch.run(r, raw)
	}()
	return func() {
		assert.NoError(t, r.Close())
		<-over
		assert.NoError(t, w.Close())
	}
}

// While calls make the QPs of ids, as many as may do so at a time and more, the events of others
// are delivered, those that complete a connection too, and so are those of the ids themselves.
func TestEventsBesideCreateQP(t *testing.T) {
	lib := fakeVerbs(t)
	begun, goOn := make(chan struct{}, 2*deviceSlots), make(chan struct{})
	created := cMemory[cQP](t, 1)
	created[0].qpNum = 17
	blocks := false // written while no call is under way
	lib.createQP = purego.NewCallback(func() uintptr {
		if blocks {
			begun <- struct{}{}
			<-goOn
		}
		return addressOf(&created[0])
	})
	nothing := purego.NewCallback(func() uintptr { return 0 })
	lib.destroyQP = nothing
	lib.modifyQP = nothing
	ch := newCMChannel(lib, &librdmacm{
		initQPAttr: purego.NewCallback(func(_, _ uintptr, mask *int32) uintptr {
			*mask = int32(verbs.QPMaskState)
			return 0
		}),
		establish: nothing, destroyID: nothing, disconnect: nothing,
	})
	events := feed(t, ch)
	ctx := fakeContext(t, lib, verbs.TransportRoCE)
	domain := &pd{ctx: ctx, handle: 1}
	told := make(chan driver.CMEvent, 4)
	newID := func(s cmState) *cmID {
		id := &cmID{ch: ch, handle: addressOf(&cMemory[cCMID](t, 1)[0]), state: s, ctx: ctx}
		id.events.Init(func(ev driver.CMEvent) { told <- ev })
		ch.register(id)
		t.Cleanup(func() { assert.NoError(t, id.Close()) })
		return id
	}

	dialer := newID(cmRouteResolved)
	q, err := dialer.CreateQP(domain, fakeInit(ctx))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, q.Close()) })
	dialer.state = cmConnecting // which Connect does
	resolving := newID(cmResolvingRoute)

	blocks = true
	let := sync.OnceFunc(func() { close(goOn) })
	var all sync.WaitGroup
	t.Cleanup(func() { // before anything is closed
		let()
		all.Wait()
	})
	type result struct {
		q   verbs.QP
		err error
	}
	const crowd = deviceSlots + 1
	made := make(chan result, crowd)
	var making [crowd]*cmID
	for i := range making {
		making[i] = newID(cmRouteResolved)
		all.Go(func() {
			q, err := making[i].CreateQP(domain, fakeInit(ctx))
			made <- result{q, err}
		})
	}
	for range deviceSlots {
		select {
		case <-begun:
		case <-time.After(30 * time.Second):
			t.Fatal("one call waits for another")
		}
	}
	for _, c := range []struct {
		what string
		id   *cmID
		typ  driver.CMEventType
		want driver.CMEventType
	}{
		{"another's route", resolving, driver.CMRouteResolved, driver.CMRouteResolved},
		{"another's answer, which brings its QP up", dialer, driver.CMConnectResponse, driver.CMEstablished},
		{"the end of another's connection", dialer, driver.CMDisconnected, driver.CMDisconnected},
		{"what is told of the id itself", making[0], driver.CMAddrChange, driver.CMAddrChange},
	} {
		select {
		case events <- cCMEvent{id: c.id.key, event: uint32(c.typ)}:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is not read", c.what)
		}
		select {
		case ev := <-told:
			assert.Equal(t, c.want, ev.Type, c.what)
			assert.Same(t, c.id, ev.ID, c.what)
			assert.NoError(t, ev.Err, c.what)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is not delivered", c.what)
		}
	}
	assert.Empty(t, made, "the calls still wait")
	let()
	for range crowd {
		r := <-made
		require.NoError(t, r.err)
		assert.NoError(t, r.q.Close())
	}
}
