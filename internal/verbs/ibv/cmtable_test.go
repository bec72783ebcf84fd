//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"slices"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// tableState is a state of an id as far as events can tell it from others.
type tableState struct {
	name string
	set  func(*cmID)
}

func inState(s cmState) tableState {
	return tableState{s.String(), func(id *cmID) { id.state = s }}
}

const (
	confirming = "confirming"   // the dialer, whose Accept of the answer is under way
	connecting = "connecting"   // the dialer, before the answer
	responded  = "responded"    // the dialer, before Accept
	accepting  = "accepting"    // the listener's end
	connected  = "connected"    // either end
	ended      = "disconnected" // likewise
	failedID   = "failed"
	closedID   = "closed"
)

func tableStates() (states []tableState) {
	for s := cmIdle; s <= cmClosed; s++ {
		states = append(states, inState(s))
	}
	return append(states,
		tableState{confirming, func(id *cmID) { id.state, id.confirming = cmAccepting, true }},
	)
}

// A tableCell is what an event does in a state.
type tableCell struct {
	next  cmState
	tells []driver.CMEventType
	calls []string // of the kernel
	keeps bool     // it waits for the end of Accept
}

func to(next cmState, tells ...driver.CMEventType) tableCell {
	return tableCell{next: next, tells: tells}
}

func (c tableCell) with(calls ...string) tableCell {
	c.calls = calls
	return c
}

// cmTable is what the kernel's events do (cma_ib_handler, cma_iw_handler and
// cma_netevent_work_handler in its cma.c, the handlers of messages in cm.c and iwcm.c). An
// event does nothing in a state that is not listed, for the reason that tableSilence gives.
func cmTable(transport verbs.Transport) map[driver.CMEventType]map[string]tableCell {
	failure := func(typ driver.CMEventType) map[string]tableCell {
		return map[string]tableCell{
			connecting: to(cmFailed, typ), responded: to(cmFailed, typ),
			accepting: to(cmFailed, typ), confirming: to(cmFailed, typ),
			connected: to(cmDisconnected, driver.CMDisconnected).with("disconnect"),
		}
	}
	t := map[driver.CMEventType]map[string]tableCell{
		driver.CMAddrResolved:  {cmResolvingAddr.String(): to(cmAddrResolved, driver.CMAddrResolved)},
		driver.CMAddrError:     {cmResolvingAddr.String(): to(cmIdle, driver.CMAddrError)},
		driver.CMRouteResolved: {cmResolvingRoute.String(): to(cmRouteResolved, driver.CMRouteResolved)},
		driver.CMRouteError:    {cmResolvingRoute.String(): to(cmAddrResolved, driver.CMRouteError)},
		driver.CMConnectResponse: {
			connecting: to(cmResponded, driver.CMConnectResponse),
			failedID:   to(cmFailed).with("reject"), // who asked has given up
			ended:      to(cmDisconnected).with("reject"),
		},
		driver.CMEstablished: {
			connecting: to(cmConnected, driver.CMEstablished),
			accepting:  to(cmConnected, driver.CMEstablished), confirming: to(cmConnected, driver.CMEstablished),
			failedID: to(cmFailed).with("disconnect"),
			ended:    to(cmDisconnected).with("disconnect"), // who had an answer unconfirmed
		},
		driver.CMRejected:     failure(driver.CMRejected),
		driver.CMUnreachable:  failure(driver.CMUnreachable),
		driver.CMConnectError: failure(driver.CMConnectError),
		driver.CMDisconnected: {
			accepting:  to(cmDisconnected, driver.CMEstablished, driver.CMDisconnected).with("disconnect"),
			confirming: {next: cmAccepting, keeps: true},
			connected:  to(cmDisconnected, driver.CMDisconnected).with("disconnect"),
		},
		driver.CMDeviceRemoval: {},
	}
	for _, s := range tableStates() {
		if s.name == closedID {
			continue
		}
		next := cmFailed
		if s.name == cmListening.String() {
			next = cmListening // on other devices
		}
		t[driver.CMDeviceRemoval][s.name] = to(next, driver.CMDeviceRemoval)
	}
	switch transport {
	case verbs.TransportIWARP: // whose kernel tells of ESTABLISHED first
		t[driver.CMDisconnected][accepting] = to(cmDisconnected, driver.CMDisconnected).with("disconnect")
	case verbs.TransportRoCE:
		for _, s := range []string{responded, confirming, connected} {
			delete(t[driver.CMUnreachable], s)
		}
	}
	return t
}

// Of a request the kernel tells nothing before it was accepted (ucma_event_handler, where
// the id has no uid yet): whoever answers a dialer that has left finds out by that.
//
// tableSilence says why an event does nothing in a state in which an id has, or is about to
// have, a connection.
var tableSilence = map[driver.CMEventType]map[string]string{
	driver.CMUnreachable: {
		responded:  "RoCE: a neighbour's address is new or forgotten, and nothing under way that could be given up",
		confirming: "RoCE: likewise",
		connected:  "RoCE: likewise; retries and keepalive find out whether the connection has ended",
	},
	driver.CMDisconnected: {
		connecting: "the peer has no connection before the confirmation (cm_dreq_handler in REQ_SENT)",
		responded:  "likewise (cm_dreq_handler in REP_RCVD and MRA_REP_SENT)",
	},
}

// Every event that the kernel may deliver, in every state, on both ends and on each kind of
// network, leads on or is known not to come. None that ends a connection is lost.
func TestEveryEventInEveryState(t *testing.T) {
	lib := needVerbs(t)
	var calls []string
	fake := func(name string) uintptr {
		return purego.NewCallback(func() uintptr { calls = append(calls, name); return 0 })
	}
	cm := &librdmacm{disconnect: fake("disconnect"), reject: fake("reject")}
	live := []string{connecting, responded, accepting, confirming, connected}
	ends := []driver.CMEventType{driver.CMRejected, driver.CMUnreachable, driver.CMConnectError, driver.CMDisconnected, driver.CMDeviceRemoval}
	for _, transport := range []verbs.Transport{verbs.TransportIB, verbs.TransportRoCE, verbs.TransportIWARP} {
		table := cmTable(transport)
		for _, s := range tableStates() {
			for typ := driver.CMAddrResolved; typ <= driver.CMTimewaitExit; typ++ {
				if typ == driver.CMConnectRequest {
					continue // makes an id of its own; see dispatch
				}
				var told []driver.CMEvent
				calls = nil
				id := &cmID{
					ch: newCMChannel(lib, cm), handle: 1,
					ctx: &devContext{dev: &device{transport: transport}},
				}
				id.order.running = true // by nobody, so no job runs
				id.events.Init(func(ev driver.CMEvent) { told = append(told, ev) })
				s.set(id)
				if id.state == cmClosed {
					id.handle = 0
				}
				was := id.state
				id.onEvent(&cmEvent{typ: typ})

				want, listed := table[typ][s.name]
				if !listed {
					want = to(was)
					if _, known := table[typ]; !known && was != cmClosed {
						want.tells = []driver.CMEventType{typ} // news that changes nothing
					}
					if slices.Contains(ends, typ) && slices.Contains(live, s.name) {
						require.NotEmpty(t, tableSilence[typ][s.name], "%v: why is %v not heard while %v?", transport, typ, s.name)
					}
				}
				var tells []driver.CMEventType
				for _, ev := range told {
					tells = append(tells, ev.Type)
				}
				assert.Equal(t, want.next, id.state, "%v: %v while %v", transport, typ, s.name)
				assert.Equal(t, want.tells, tells, "%v: %v while %v", transport, typ, s.name)
				assert.Equal(t, want.calls, calls, "%v: %v while %v", transport, typ, s.name)
				assert.Equal(t, want.keeps, id.left != nil, "%v: %v while %v", transport, typ, s.name)
				if slices.Contains(ends, typ) && len(told) > 0 && (s.name == responded || s.name == confirming) && typ != driver.CMDeviceRemoval {
					assert.ErrorIs(t, told[0].Err, verbs.ErrTryAgain, "%v: %v while %v: nothing was delivered", transport, typ, s.name)
				}
			}
		}
	}
}

// An end of a listener of which the device says that it was not brought up after all (qedr).
func TestEstablishedInVain(t *testing.T) {
	var told []driver.CMEvent
	id := &cmID{handle: 1, state: cmAccepting, ctx: &devContext{dev: &device{transport: verbs.TransportIWARP}}}
	id.events.Init(func(ev driver.CMEvent) { told = append(told, ev) })
	id.onEvent(&cmEvent{typ: driver.CMEstablished, status: -int32(syscall.ECONNRESET)})
	id.onEvent(&cmEvent{typ: driver.CMDisconnected})
	require.Len(t, told, 1)
	assert.Equal(t, driver.CMConnectError, told[0].Type)
	assert.ErrorIs(t, told[0].Err, syscall.ECONNRESET)
	assert.Equal(t, cmFailed, id.state)
}

// Disconnect of an answer that nobody has confirmed, for which rdma_disconnect does nothing,
// ends it here. A confirmation that comes then is that of a connection to end.
func TestDisconnectBeforeConfirmed(t *testing.T) {
	lib := needVerbs(t)
	for transport, unconfirmed := range map[verbs.Transport]bool{verbs.TransportIB: true, verbs.TransportRoCE: true, verbs.TransportIWARP: false} {
		var told []driver.CMEventType
		calls := 0
		id := &cmID{handle: 1, state: cmAccepting, ctx: &devContext{dev: &device{transport: transport}}}
		id.ch = newCMChannel(lib, &librdmacm{
			disconnect: purego.NewCallback(func() uintptr { calls++; return 0 }),
			reject:     purego.NewCallback(func() uintptr { t.Error("the answer goes on to be repeated"); return 0 }),
		})
		id.events.Init(func(ev driver.CMEvent) { told = append(told, ev.Type) })
		require.NoError(t, id.Disconnect())
		assert.Equal(t, 1, calls)
		if !unconfirmed {
			assert.Empty(t, told, "%v: the kernel's follows", transport)
			continue
		}
		assert.Equal(t, []driver.CMEventType{driver.CMDisconnected}, told, "%v", transport)
		id.onEvent(&cmEvent{typ: driver.CMEstablished})
		assert.Equal(t, 2, calls, "%v: the peer hears of it", transport)
		id.onEvent(&cmEvent{typ: driver.CMDisconnected})
		assert.Len(t, told, 1, "%v: once", transport)
		assert.Equal(t, cmDisconnected, id.state)
	}
}
