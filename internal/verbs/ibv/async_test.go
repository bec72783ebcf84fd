//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestDeviceLostWhileOpened: the first event of a context may be that its device is lost, before whoever
// opens it has it. The race detector sees what is not set by then.
func TestDeviceLostWhileOpened(t *testing.T) {
	lib := fakeVerbs(t)
	lib.queryDevice = purego.NewCallback(func() uintptr { return 0 })
	lib.getAsyncEvent = failingCall(t, ^uintptr(0), syscall.EIO)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	c := &cMemory[cContext](t, 1)[0]
	c.asyncFD = int32(r.Fd())
	for range 200 {
		ctx, err := newContext(lib, &device{lib: lib, name: "none0", transport: verbs.TransportRoCE}, addressOf(c), nil)
		require.NoError(t, err)
		<-ctx.async.done
	}
}

// TestQPFatal: a device that gives up a QP may complete nothing on it any more. The application of its
// connection is told, and the peer, and the QP goes to ERR for what can be flushed.
func TestQPFatal(t *testing.T) {
	lib := fakeVerbs(t)
	modified := make(chan verbs.QPState, 4)
	lib.modifyQP = purego.NewCallback(func(_ uintptr, attr *cQPAttr) uintptr {
		modified <- verbs.QPState(attr.qpState)
		return 0
	})
	lib.ackAsyncEvent = succeedingCall()
	ctx := fakeContext(t, lib, verbs.TransportRoCE)
	ctx.async.ctx = ctx
	handles := cMemory[cQP](t, 8)
	n := 0
	fatal := func(id *cmID) {
		handle := addressOf(&handles[n])
		n++
		q := &qp{ctx: ctx, id: id, handle: handle, c: at[cQP](handle)}
		if id != nil {
			id.qp = q
		}
		ctx.addQP(q)
		require.False(t, ctx.async.handle(&cAsyncEvent{element: handle, eventType: uint32(verbs.EventQPFatal)}))
		ev, err := ctx.AsyncEvent(t.Context())
		require.NoError(t, err)
		assert.Equal(t, verbs.EventQPFatal, ev.Type)
		assert.Same(t, q, ev.QP)
	}
	disconnected := make(chan uintptr, 4)
	ch := newCMChannel(lib, &librdmacm{disconnect: purego.NewCallback(func(handle uintptr) uintptr {
		disconnected <- handle
		return 0
	})})
	for state, want := range map[cmState]driver.CMEventType{
		cmConnected: driver.CMDisconnected,
		cmAccepting: driver.CMConnectError,
		cmResponded: driver.CMConnectError,
	} {
		told := make(chan driver.CMEvent, 4)
		id := &cmID{ch: ch, handle: uintptr(state) + 1, state: state, ctx: ctx}
		id.events.Init(func(ev driver.CMEvent) { told <- ev })
		fatal(id)
		ev := <-told
		assert.Equal(t, want, ev.Type, "%v", state)
		assert.ErrorIs(t, ev.Err, errBroken, "%v", state)
		assert.Equal(t, verbs.QPErr, <-modified, "%v", state)
		if state == cmConnected {
			assert.Equal(t, id.handle, <-disconnected, "the peer is told")
		}
		id.onEvent(&cmEvent{typ: driver.CMDisconnected})
		assert.Empty(t, told, "%v: once", state)
	}
	fatal(nil)
	assert.Equal(t, verbs.QPErr, <-modified, "a QP that was made on no id")
	assert.Empty(t, disconnected)
}

// TestEventOfWhatIsBeingDestroyed: who destroys an object waits until its events are acknowledged, and
// hears of none of them afterwards.
func TestEventOfWhatIsBeingDestroyed(t *testing.T) {
	var destroy func() error
	lib := fakeVerbs(t)
	lib.destroyCQ, lib.destroyQP, lib.destroySRQ = succeedingCall(), succeedingCall(), succeedingCall()
	lib.ackAsyncEvent = purego.NewCallback(func() uintptr {
		assert.NoError(t, destroy())
		return 0
	})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, typ := range []verbs.AsyncEventType{verbs.EventCQErr, verbs.EventSQDrained, verbs.EventSRQLimitReached} {
		ctx := fakeContext(t, lib, verbs.TransportRoCE)
		ctx.async.ctx = ctx
		p := &pd{ctx: ctx}
		newMem := func() *arena {
			mem, err := newArena(lib, 8)
			require.NoError(t, err)
			return mem
		}
		handle := addressOf(&cMemory[cQP](t, 1)[0])
		switch typ {
		case verbs.EventCQErr:
			q := &cq{ctx: ctx, handle: handle, mem: newMem()}
			ctx.addCQ(q)
			destroy = q.Close
		case verbs.EventSQDrained:
			q := &qp{ctx: ctx, pd: p, handle: handle, c: at[cQP](handle), sendCQ: &cq{}, recvCQ: &cq{}}
			ctx.addQP(q)
			destroy = q.Close
		default:
			s := &srq{pd: p, handle: handle, mem: newMem()}
			ctx.addSRQ(s)
			destroy = s.Close
		}
		require.False(t, ctx.async.handle(&cAsyncEvent{element: handle, eventType: uint32(typ)}))
		ev, err := ctx.AsyncEvent(over)
		assert.ErrorIs(t, err, context.Canceled, "%v", ev.Type)
	}
}
