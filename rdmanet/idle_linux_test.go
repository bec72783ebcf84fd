package rdmanet

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs"
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
			require.Zero(t, c.Stats().RescuedWakeups)
		}
	}
}

// cpuTime is what the process has used so far, user and system.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleUsesNoCPU has a reader sleep at each end of a hundred connections.
func TestIdleUsesNoCPU(t *testing.T) {
	clients, servers := manyPairs(t, 100)
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
	parks := func() (n uint64) {
		for i := range clients {
			n += clients[i].Stats().Parks + servers[i].Stats().Parks
		}
		return n
	}
	// The making of so much has left something behind, as for the collector: any
	// second without work does. Heartbeats are little work.
	little := slowly(20 * time.Millisecond)
	var used time.Duration
	var woken uint64
	for began := time.Now(); time.Since(began) < 2*patience; {
		before, cpu := parks(), cpuTime(t)
		time.Sleep(time.Second)
		used, woken = cpuTime(t)-cpu, parks()-before
		t.Logf("%v of CPU time in a second, %d wake-ups", used, woken)
		if used < little && woken == 0 {
			break
		}
	}
	closeAll(t, clients, servers)
	readers.Wait()
	require.Less(t, used, little)
	require.Zero(t, woken, "somebody woke up")
}

// descriptorsEach is no less than what one end of a connection has open.
const descriptorsEach = 8

// TestThousandConnections has a thousand open at once with default settings, and
// each of them echo.
func TestThousandConnections(t *testing.T) {
	n := 1000
	if testing.Short() || raceEnabled {
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
	require.LessOrEqual(t, MemoryInUse(), before)
}

// TestWakeups has messages wake a sleeper, and nobody who is awake. Who wakes a
// sleeper of a real device is its kernel, which does not count.
func TestWakeups(t *testing.T) {
	client, server := pair(t)
	got := make(chan int)
	go func() {
		defer close(got)
		b := make([]byte, 1)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			got <- n
		}
	}()
	const rounds = 50
	for i := range rounds {
		// The reader has gone to sleep before each write.
		require.Eventually(t, func() bool { return server.Stats().Parks > uint64(i) }, patience, 100*time.Microsecond)
		time.Sleep(100 * time.Microsecond) // from the count of the park to the park itself
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		<-got
	}
	s := client.Stats()
	require.EqualValues(t, rounds, s.MessagesSent)
	if _, counts := client.ep.qp.(verbs.QPStatter); !counts {
		require.Zero(t, s.WakeupsSent+s.WakeupsSuppressed)
		require.NoError(t, server.Close())
		_, open := <-got
		require.False(t, open)
		return
	}
	require.LessOrEqual(t, s.WakeupsSent, s.MessagesSent, "at most one for each message")
	require.Greater(t, s.WakeupsSent, uint64(rounds/2), "sleepers are woken")
	require.Equal(t, s.DoorbellsSent, s.WakeupsSent+s.WakeupsSuppressed)

	// Nobody waits now: the server's reader is gone.
	require.NoError(t, server.SetReadDeadline(longPast))
	_, open := <-got
	require.False(t, open)
	awake := client.Stats().WakeupsSent
	for range 10 {
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
	}
	// One may find the CQ still armed from the reader's last sleep.
	require.LessOrEqual(t, client.Stats().WakeupsSent, awake+1)
	require.NoError(t, server.SetReadDeadline(time.Time{}))
	readFull(t, server, 10)
}
