//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// What is documented is the sum of what is bounded one by one.
const (
	allDeviceSlots = deviceSlots + deviceReadySlots + deviceEndSlots
	allCMSlots     = cmSlots + cmReadySlots + cmEndSlots + routeSlots // without iWARP
	allSlots       = allDeviceSlots + allCMSlots + connectSlots       // of one device
)

// manyThreads is what docs/OPERATIONS.md says is enough for one device.
const manyThreads = 100

// A crowd is ids, and objects of a device, whose calls of the libraries wait until goOn is closed,
// and then fail.
type crowd struct {
	t      *testing.T
	ch     *cmChannel
	ctx    *devContext
	iwarp  *devContext // the same device as one of iWARP: the ids go by the one or the other
	domain *pd
	goOn   chan struct{}
	in     atOnce
	left   sync.WaitGroup // ids that will be told how it ended
	n      atomic.Uint32
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{t: t, goOn: make(chan struct{})}
	fails := func(with uintptr) uintptr {
		return purego.NewCallback(func() uintptr {
			c.in.enter()
			defer c.in.leave()
			<-c.goOn
			return with
		})
	}
	null, minusOne, errno := fails(0), fails(^uintptr(0)), fails(uintptr(syscall.EBUSY))
	lib := fakeVerbs(t)
	lib.createQP, lib.createCQ, lib.regMR, lib.allocPD = null, null, null, null
	lib.modifyQP, lib.queryQP, lib.deregMR, lib.deallocPD = errno, errno, errno, errno
	c.ch = newCMChannel(lib, &librdmacm{
		resolveAddr: minusOne, resolveRoute: minusOne, connect: minusOne, accept: minusOne, reject: minusOne,
		disconnect: minusOne, establish: minusOne, notify: minusOne, destroyID: minusOne,
		initQPAttr: purego.NewCallback(func(_, _ uintptr, mask *int32) uintptr {
			*mask = int32(verbs.QPMaskState)
			return 0
		}),
	})
	c.ctx = fakeContext(t, lib, verbs.TransportRoCE)
	asIWARP := *c.ctx.dev
	asIWARP.transport = verbs.TransportIWARP
	c.iwarp = &devContext{lib: lib, dev: &asIWARP, begin: c.ctx.begin, ready: c.ctx.ready, end: c.ctx.end}
	c.domain = &pd{ctx: c.ctx, handle: 1}
	return c
}

// id is one of the crowd.
func (c *crowd) id(s cmState) *cmID {
	id := &cmID{
		ch: c.ch, handle: 1, state: s, ctx: c.ctx,
		// Of many hosts, for one takes a part of the slots only.
		remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(c.n.Add(1))}), 1),
	}
	id.events.Init(func(driver.CMEvent) {})
	c.ch.register(id)
	return id
}

// awaited is an id that the crowd waits for, until it is told something.
func (c *crowd) awaited(s cmState) *cmID {
	id := c.id(s)
	c.left.Add(1)
	told := sync.OnceFunc(c.left.Done)
	id.events.SetSink(func(driver.CMEvent) { told() })
	return id
}

func (c *crowd) qp(id *cmID, made *cQP) *qp {
	return &qp{ctx: c.ctx, pd: c.domain, handle: 1, c: made, id: id}
}

// errTold is for calls whose failure an event tells, or nobody.
var errTold = errors.New("it is told elsewhere")

// told has the reader's part done of an event.
func (c *crowd) told(id *cmID, typ driver.CMEventType) {
	c.ch.dispatch(&cmEvent{typ: typ, key: id.key})
}

// events have the goroutines of ids make calls that wait.
func (c *crowd) events() map[string]func() error {
	made := &cMemory[cQP](c.t, 1)[0]
	return map[string]func() error{
		"CONNECT_RESPONSE": func() error {
			id := c.awaited(cmConnecting)
			id.qp = c.qp(id, made)
			c.told(id, driver.CMConnectResponse)
			return errTold
		},
		"DISCONNECTED": func() error {
			c.told(c.awaited(cmConnected), driver.CMDisconnected)
			return errTold
		},
		"a request to nobody": func() error {
			c.ch.dispatch(&cmEvent{typ: driver.CMConnectRequest, request: 1})
			return errTold
		},
	}
}

// bringUps take QPs to RTS. They ask the connection manager first, whose slots others are to take.
func (c *crowd) bringUps() map[string]func() error {
	made := &cMemory[cQP](c.t, 1)[0]
	return map[string]func() error{
		"ibv_modify_qp to RTS": func() error {
			id := c.id(cmRequested)
			id.qp = c.qp(id, made)
			return id.Accept(nil)
		},
	}
}

// calls are all other kinds of calls that may wait: each is made by one of the crowd, which it fails.
func (c *crowd) calls() map[string]func() error {
	established := &cMemory[cQP](c.t, 1)[0]
	established.state = uint32(verbs.QPRTS)
	return map[string]func() error{
		// Calls that make or change an object.
		"ibv_alloc_pd":  func() error { _, err := c.ctx.AllocPD(); return err },
		"ibv_create_cq": func() error { _, err := c.ctx.CreateCQ(1, nil); return err },
		"ibv_reg_mr":    func() error { _, err := c.domain.RegMR(make([]byte, 1), 0); return err },
		"ibv_create_qp": func() error { _, err := c.domain.CreateQP(fakeInit(c.ctx)); return err },
		"ibv_create_qp of an id": func() error {
			_, err := c.id(cmRouteResolved).CreateQP(c.domain, fakeInit(c.ctx))
			return err
		},
		"ibv_query_qp": func() error {
			if c.qp(nil, established).State() != verbs.QPErr {
				return nil
			}
			return verbs.ErrInvalid
		},

		// Calls that destroy one, or end it.
		"ibv_dereg_mr":   func() error { return (&mr{pd: c.domain, handle: 1}).Close() },
		"ibv_dealloc_pd": func() error { return (&pd{ctx: c.ctx, handle: 1}).Close() },
		"ibv_modify_qp to ERR": func() error {
			return c.qp(nil, established).Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState)
		},

		// Calls that complete a connection.
		"rdma_accept":    func() error { return c.id(cmRequested).Accept(&driver.ConnParam{QPNum: 17}) },
		"rdma_establish": func() error { return c.id(cmResponded).Accept(nil) },
		"rdma_notify": func() error {
			id := c.id(cmAccepting)
			id.notice = &notice{time.NewTimer(time.Hour), make(chan struct{})}
			return id.tellKernel()
		},

		// Other calls for ids.
		"rdma_resolve_addr": func() error {
			id := c.id(cmIdle)
			return id.ResolveAddr(netip.AddrPort{}, id.remote, time.Hour)
		},
		"rdma_connect":    func() error { return c.id(cmRouteResolved).Connect(&driver.ConnParam{QPNum: 17}, time.Hour) },
		"rdma_reject":     func() error { return c.id(cmRequested).Reject(nil) },
		"rdma_disconnect": func() error { return c.id(cmConnected).Disconnect() },
		"rdma_destroy_id": func() error { return c.id(cmIdle).Close() },

		// Calls on goroutines of their own.
		"rdma_resolve_route": func() error {
			if err := c.awaited(cmAddrResolved).ResolveRoute(time.Hour); err != nil {
				return err
			}
			return errTold
		},
		"rdma_connect over TCP": func() error {
			id := c.awaited(cmRouteResolved)
			id.ctx = c.iwarp
			if err := id.Connect(&driver.ConnParam{QPNum: 17}, time.Hour); err != nil {
				return err
			}
			return errTold
		},
	}
}

const crowdOfCalls = "IBV_TEST_CROWD_OF_CALLS"

// Ten thousand connections that begin and end at once, on a device whose every call waits, hold as
// many OS threads as there are slots, whatever they call and whoever calls it. Go ends a process
// that has more than the limit set here.
func TestCrowdTakesFewThreads(t *testing.T) {
	needVerbs(t)
	if os.Getenv(crowdOfCalls) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestCrowdTakesFewThreads$", "-test.count=1")
		child.Env = append(os.Environ(), crowdOfCalls+"=1", "GOMAXPROCS=4") // each takes a thread or two
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	debug.SetMaxThreads(manyThreads)
	c := newCrowd(t)
	events, bringUps, calls := c.events(), c.bringUps(), c.calls()
	var all sync.WaitGroup
	begin := func(some map[string]func() error) {
		for range 10000 / (len(events) + len(bringUps) + len(calls)) {
			for what, call := range some {
				all.Go(func() { assert.Error(t, call(), what) })
			}
		}
	}
	begin(events)
	assert.Eventually(t, func() bool { return len(c.ch.ends) == cap(c.ch.ends) }, 30*time.Second, time.Millisecond, "some events bring about nothing")
	begin(bringUps)
	assert.Eventually(t, func() bool { return len(c.ctx.ready) == cap(c.ctx.ready) }, 30*time.Second, time.Millisecond, "some QPs are not brought up")
	begin(calls)
	assert.Eventually(t, func() bool { return c.in.now.Load() >= allSlots }, 30*time.Second, time.Millisecond, "some slots are never taken")
	time.Sleep(100 * time.Millisecond) // in which one more may come
	t.Logf("%d calls, %d threads", c.in.now.Load(), threads(t))
	close(c.goOn)
	all.Wait()
	c.left.Wait()
	assert.EqualValues(t, allSlots, c.in.most.Load())
}

// What the pages say of threads is the sum of the bounds.
func TestThreadsAreDocumented(t *testing.T) {
	for name, says := range map[string][]string{
		"OPERATIONS.md": {
			fmt.Sprintf("at most %d calls for each device and %d of the connection manager", allDeviceSlots, allCMSlots),
			fmt.Sprintf("another %d where there is iWARP", connectSlots),
			fmt.Sprintf("of %d above what the program takes otherwise", manyThreads),
		},
		"ARCHITECTURE.md": {
			fmt.Sprintf("%d for each device, of which six are for taking the QPs of connections to RTS and six for destroying, and %d for the connection manager", allDeviceSlots, allCMSlots),
			fmt.Sprintf("It has %d slots of its own, six of them for one host at most", connectSlots),
		},
	} {
		page, err := os.ReadFile("../../../docs/" + name)
		require.NoError(t, err)
		text := strings.Join(strings.Fields(string(page)), " ")
		for _, s := range says {
			assert.True(t, strings.Contains(text, s), "%s does not say %q", name, s)
		}
	}
	assert.Less(t, allSlots, manyThreads-20, "Go needs some, too")
	for _, n := range []int{deviceReadySlots, deviceEndSlots, hostSlots} {
		assert.Equal(t, 6, n, "which the page calls six")
	}
}
