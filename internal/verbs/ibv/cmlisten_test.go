//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// asked is a listener on every device, for which the test makes requests as the event
// channel does.
type asked struct {
	ch  *cmChannel
	ctx *devContext
	id  *cmID

	told  chan driver.CMEvent // to the listener
	heard chan driver.CMEvent // by those who have a request
}

func newAsked(backlog int) *asked {
	a := &asked{
		ctx:  &devContext{dev: &device{name: "none0"}, handle: 1},
		told: make(chan driver.CMEvent, 2*maxHeld), heard: make(chan driver.CMEvent, 2*maxHeld),
	}
	a.ch = &cmChannel{ids: map[uintptr]*cmID{}, contexts: map[uintptr]*devContext{a.ctx.handle: a.ctx}}
	a.id = &cmID{ch: a.ch, handle: 1, state: cmListening, listen: listening{backlog: backlog}}
	a.id.events.Init(func(ev driver.CMEvent) {
		if ev.Type == driver.CMConnectRequest {
			ev.ID.SetSink(func(ev driver.CMEvent) { a.heard <- ev })
		}
		a.told <- ev
	})
	a.ch.register(a.id)
	return a
}

// request has a client ask.
func (a *asked) request(t *testing.T) { a.requestAt(t, "198.18.0.1:1") }

func (a *asked) requestAt(t *testing.T, at string) {
	c := new(cCMID)
	t.Cleanup(func() { runtime.KeepAlive(c) })
	var addr sockaddr
	require.NoError(t, addr.put(netip.MustParseAddrPort(at)))
	a.id.newRequest(&cmEvent{
		typ: driver.CMConnectRequest, key: a.id.key, request: uintptr(unsafe.Pointer(c)), verbs: a.ctx.handle, local: addr, remote: addr,
	}).admit()
}

// A device that is lost under a request which waits for its turn is not taken for a
// device of the listener: whoever gets the request hears of it.
func TestDeviceLostUnderWaitingRequest(t *testing.T) {
	a := newAsked(1)
	a.request(t)
	a.request(t)
	first := <-a.told
	require.Equal(t, driver.CMConnectRequest, first.Type)

	a.ch.lost(a.ctx)
	assert.Equal(t, first.ID, (<-a.heard).ID)
	require.Empty(t, a.told, "the listener has no device to lose")

	a.id.answered()
	second := <-a.told
	require.Equal(t, driver.CMConnectRequest, second.Type)
	ev := <-a.heard
	assert.Equal(t, driver.CMDeviceRemoval, ev.Type)
	assert.Equal(t, second.ID, ev.ID)
}

// A device may be lost while a request that came by it is being taken in.
func TestDeviceLostUnderNewRequest(t *testing.T) {
	a := newAsked(1)
	var losing sync.WaitGroup
	stop := make(chan struct{})
	losing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				a.ch.lost(a.ctx)
			}
		}
	})
	for range maxHeld {
		a.request(t)
	}
	close(stop)
	losing.Wait()
	require.Equal(t, driver.CMConnectRequest, (<-a.told).Type)
	require.Empty(t, a.told)
}

// A request has the addresses by which it came, with the name of their zone.
func TestRequestAddresses(t *testing.T) {
	a := newAsked(2)
	for _, at := range []string{"198.18.0.1:1", "[fe80::1%lo]:2"} {
		a.requestAt(t, at)
		id := (<-a.told).ID
		require.Equal(t, at, id.LocalAddr().String())
		require.Equal(t, at, id.RemoteAddr().String())
	}
}

// A request may come by a device without a GUID, which librdmacm does not find.
func TestRequestWithoutDevice(t *testing.T) {
	a := newAsked(1)
	child := &cmID{ch: a.ch, state: cmRequested, came: new(cmEvent)}
	require.ErrorIs(t, child.inherit(a.id), verbs.ErrNoDevice)
}
