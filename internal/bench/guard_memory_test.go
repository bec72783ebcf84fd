//go:build !race

// The race detector allocates, and keeps memory of its own.

package bench

import (
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// TestGuardHTTPAllocations has a request over a kept-alive connection of ours, client
// and server together, allocate hardly more than over TCP. What else the process does, such
// as bringing up a lane, is not in every round.
func TestGuardHTTPAllocations(t *testing.T) {
	guarded(t)
	at := siteFor(t, "one")
	for _, p := range protocols[:2] {
		t.Run(p.name, func(t *testing.T) {
			allocations := func(transport string) float64 {
				rt, err := at.roundTripper(transport, p)
				require.NoError(t, err)
				defer rt.CloseIdleConnections()
				client, url := &http.Client{Transport: rt}, fmt.Sprintf("%s://%s/1024", p.scheme(), httpHost)
				least := math.Inf(1)
				for range 5 {
					least = min(least, testing.AllocsPerRun(100, func() {
						if err := get(client, url, p, 1024); err != nil {
							t.Fatal(err)
						}
					}))
				}
				return least
			}
			rdma, tcp := allocations("rdma"), allocations("tcp")
			t.Logf("%v over rdma, %v over TCP", rdma, tcp)
			assert.LessOrEqual(t, rdma, tcp+3)
		})
	}
}

// TestGuardDial bounds what it costs in memory to dial, echo and close, both ends
// together, where a lane stands. Now and then another comes up beside it: the least of a few rounds
// has none of those.
func TestGuardDial(t *testing.T) {
	guarded(t)
	at := siteFor(t, "one")
	const rounds, n, size = 10, 40, 64
	message := echoOrder(size)
	back := make([]byte, size)
	allocations, bytes := uint64(math.MaxUint64), uint64(math.MaxUint64)
	var before, after runtime.MemStats
	for range rounds {
		runtime.ReadMemStats(&before)
		for range n {
			conn, err := at.dial(t.Context(), "rdma")
			require.NoError(t, err)
			exchange(Smoke{t}, conn, message, back)
			require.NoError(t, conn.Close())
		}
		runtime.ReadMemStats(&after)
		allocations = min(allocations, after.Mallocs-before.Mallocs)
		bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
	}
	t.Logf("%d allocations and %d bytes a connection", allocations/n, bytes/n)
	atMostEach(t, 32, allocations, n, "allocations")
	atMostEach(t, 3<<10, bytes, n, "bytes")
}

// TestGuardIdle bounds what an end of an idle connection holds, in processes that do
// nothing else.
func TestGuardIdle(t *testing.T) {
	guarded(t)
	const some, n = 32, 1024 // many: memory is registered in chunks of 256 KiB
	server, err := startWorker()
	require.NoError(t, err)
	client, err := startWorker()
	require.NoError(t, err)
	both := &crowd{servers: []worker{server}, clients: []worker{client}}
	defer func() {
		for _, w := range both.workers() {
			assert.NoError(t, w.stop())
		}
	}()
	at, err := server.do(order{Op: opListen, Transport: "rdma"})
	require.NoError(t, err)
	open := func(n int) usage {
		_, err := client.do(order{Op: opOpen, Transport: "rdma", Address: at.Address, Count: n, Active: activeConns})
		require.NoError(t, err)
		used, err := both.measure()
		require.NoError(t, err)
		return used
	}
	before := open(some) // and with them what a process has once
	const ends = 2 * n
	type bound struct {
		what        string
		used, bound int64
	}
	bounds := func(used usage) []bound {
		return []bound{
			{"descriptors", used.Descriptors, ends / 32},
			{"mappings", used.Mappings, ends / 16},
			{"bytes of rings and send buffers", used.Registered, 2 * rdmanet.DefaultReadBuffer * ends},
			{"bytes of the Go heap and of stacks", used.Heap, 6 << 10 * ends},
			{"bytes resident", used.Resident, 12 << 10 * ends},
			{"bytes of memory, shared ones counted once", used.Proportional, 9 << 10 * ends},
		}
	}
	// A connection is idle when nothing has come for a moment.
	used := open(n).minus(before)
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && slices.ContainsFunc(bounds(used), func(b bound) bool { return b.used > b.bound }); {
		now, err := both.measure()
		require.NoError(t, err)
		used = now.minus(before)
	}
	for _, b := range bounds(used) {
		t.Logf("%s: %.2f an end, at most %.2f", b.what, float64(b.used)/ends, float64(b.bound)/ends)
		assert.LessOrEqual(t, b.used, b.bound, b.what)
	}
}
