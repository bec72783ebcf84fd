package bench

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// BenchmarkIdle is about the memory of connections that are idle, both ends in this process, with no
// goroutine that waits for them: those are the application's. Its ns/op is of no interest.
func BenchmarkIdle(b *testing.B) { Run(b, idleCases(1<<14)) }

func idleCases(conns int) []Case {
	return []Case{{Name: "procs=one/transport=rdma", Run: func(m Meter, _ int) {
		if !haveRDMA {
			m.Skip("the software device needs Linux on amd64 or arm64")
		}
		// Once, whatever is asked: it takes seconds until what a round had is gone.
		m.ReportMetric(float64(heldByIdle(m, conns))/float64(conns), "held-B/conn")
	}}}
}

// heldByIdle returns how many bytes of the Go heap, of rings and of send buffers so many connections
// hold, both ends together.
func heldByIdle(m Meter, conns int) int {
	// What earlier work has left is not to go meanwhile.
	require.Eventually(m, func() bool { return rdmanet.MemoryInUse() == 0 }, time.Minute, 10*time.Millisecond)
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	require.NoError(m, err)
	defer l.Close()
	ends := make([]net.Conn, 0, 2*(conns/8+conns))
	ends = appendIdle(m, ends, l, conns/8) // and with them what a process has once
	before := memoryHeld()
	ends = appendIdle(m, ends, l, conns)
	held := memoryHeld() - before
	for _, c := range ends {
		require.NoError(m, c.Close())
	}
	return held
}

// appendIdle opens n connections to l, has each carry a byte in both directions, and appends their ends.
func appendIdle(m Meter, ends []net.Conn, l net.Listener, n int) []net.Conn {
	b := make([]byte, 1)
	for range n {
		client, err := dial(context.Background(), "rdma", l.Addr().String())
		require.NoError(m, err)
		_, err = client.Write(b)
		require.NoError(m, err)
		server, err := l.Accept()
		require.NoError(m, err)
		_, err = server.Read(b)
		require.NoError(m, err)
		_, err = server.Write(b)
		require.NoError(m, err)
		_, err = client.Read(b)
		require.NoError(m, err)
		ends = append(ends, client, server)
	}
	return ends
}

// memoryHeld returns what is live on the Go heap and what the library has registered. A lane's own
// goroutine and its worker have done what is due when that becomes no less for a moment.
func memoryHeld() int {
	const pause, still = 20 * time.Millisecond, 10
	least := int(^uint(0) >> 1)
	for same := 0; same < still; same++ {
		time.Sleep(pause)
		runtime.GC()
		runtime.GC() // what pools had
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		if now := int(s.HeapAlloc) + int(rdmanet.MemoryInUse()); now < least-least/1000 {
			least, same = now, 0
		}
	}
	return least
}
