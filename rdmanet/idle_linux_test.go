package rdmanet

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/racedetector"
)

// manyPairs makes n connections of one listener, with default settings.
func manyPairs(t *testing.T, n int) (clients, servers []*Conn) {
	t.Helper()
	l, err := Listen("rdma", testAddr())
	require.NoError(t, err)
	defer l.Close()
	for range n {
		c, err := Dial("rdma", l.Addr().String())
		require.NoError(t, err)
		clients = append(clients, c.(*Conn))
		s, err := l.Accept()
		require.NoError(t, err)
		servers = append(servers, s.(*Conn))
	}
	return clients, servers
}

// closeAll closes connections and waits until nothing of them is left.
func closeAll(t *testing.T, conns ...[]*Conn) {
	t.Helper()
	for _, cs := range conns {
		for _, c := range cs {
			require.NoError(t, c.Close())
		}
	}
	for _, cs := range conns {
		for _, c := range cs {
			torn(t, c)
		}
	}
}

// idleConns has a reader sleep at each end of n connections, and runs f with them.
func idleConns(t *testing.T, n int, f func(parks func() uint64)) {
	t.Helper()
	clients, servers := manyPairs(t, n)
	var readers sync.WaitGroup
	for i := range clients {
		for _, c := range []*Conn{clients[i], servers[i]} {
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
			readers.Go(func() { _, _ = io.Copy(io.Discard, c) })
		}
	}
	// A reader that has parked wakes nobody and is woken by nothing.
	require.Eventually(t, func() bool {
		for i := range clients {
			if clients[i].Stats().Parks == 0 || servers[i].Stats().Parks == 0 ||
				clients[i].Stats().BytesRead == 0 || servers[i].Stats().BytesRead == 0 {
				return false
			}
		}
		return true
	}, 2*patience, 10*time.Millisecond)
	f(func() (n uint64) {
		for i := range clients {
			n += clients[i].Stats().Parks + servers[i].Stats().Parks
		}
		return n
	})
	closeAll(t, clients, servers)
	readers.Wait()
}

// TestIdleWakesNobody has a reader sleep at each end of a hundred connections: once they
// have come to sleep, none of them wakes up. TestTimingIdle measures what that costs.
func TestIdleWakesNobody(t *testing.T) {
	idleConns(t, 100, func(parks func() uint64) { requireNoWakeups(t, parks) })
}

// requireNoWakeups waits until nobody parks any more, which who wakes up for nothing does
// again and again.
func requireNoWakeups(t *testing.T, parks func() uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		before := parks()
		time.Sleep(100 * time.Millisecond)
		return parks() == before
	}, patience, time.Millisecond, "somebody wakes up all the time")
}

// descriptorsEach is no less than what one end of a connection has open.
const descriptorsEach = 8

// TestThousandConnections has a thousand open at once with default settings, and
// each of them echo.
func TestThousandConnections(t *testing.T) {
	n := 1000
	if testing.Short() || racedetector.Enabled {
		n = 200
	}
	before, files := MemoryInUse(), len(leaktest.OpenFiles())
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if most := (int(min(limit.Cur, 1<<20)) - files) / (2 * descriptorsEach); most < n {
		t.Logf("RLIMIT_NOFILE is %d: only %d connections", limit.Cur, most)
		n = most
	}
	clients, servers := manyPairs(t, n)
	t.Logf("%d connections use %d bytes of rings and %d descriptors", n, MemoryInUse()-before, len(leaktest.OpenFiles())-files)
	for _, s := range servers {
		go func() { _, _ = io.Copy(s, s) }()
	}
	var echoes sync.WaitGroup
	for i, c := range clients {
		echoes.Go(func() {
			msg := []byte{byte(i), byte(i >> 8), 'x'}
			got := make([]byte, len(msg))
			if _, err := c.Write(msg); err != nil {
				t.Errorf("connection %d: %v", i, err)
			} else if _, err := io.ReadFull(c, got); err != nil || string(got) != string(msg) {
				t.Errorf("connection %d: %q, %v", i, got, err)
			}
		})
	}
	echoes.Wait()
	addrs := map[string]bool{}
	for _, c := range clients {
		addrs[c.LocalAddr().String()] = true
	}
	require.Len(t, addrs, n, "local addresses are distinct")
	closeAll(t, clients, servers)
	// That of streams goes when their ends have met.
	require.Eventually(t, func() bool { return MemoryInUse() <= before }, patience, time.Millisecond)
}
