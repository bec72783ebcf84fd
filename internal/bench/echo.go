package bench

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/latency"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// roundTrips is allocated once, so that recording a round trip allocates nothing.
var roundTrips latency.Histogram

func reportRoundTrips(m Meter) {
	m.ReportMetric(float64(roundTrips.Quantile(0.5)), "p50-ns")
	m.ReportMetric(float64(roundTrips.Quantile(0.99)), "p99-ns")
}

// Echo sends n messages, each when all of the one before came back, and closes the connection.
func Echo(m Meter, n int, conn net.Conn, size int) {
	defer conn.Close()
	message, back := make([]byte, size), make([]byte, size)
	warm := min(n, 1<<20/size+16)
	startJob(m, conn, jobEcho, size, warm+n)
	for range warm {
		exchange(m, conn, message, back)
	}
	roundTrips.Reset()
	m.ResetTimer()
	start := time.Now()
	last := time.Duration(0)
	for range n {
		exchange(m, conn, message, back)
		now := time.Since(start)
		roundTrips.Record(now - last)
		last = now
	}
	m.StopTimer()
	reportRoundTrips(m)
}

func exchange(m Meter, conn net.Conn, message, back []byte) {
	if _, err := conn.Write(message); err != nil {
		m.Fatal(err)
	}
	if _, err := io.ReadFull(conn, back); err != nil {
		m.Fatal(err)
	}
}

// idle is longer than any end spins before it goes to sleep.
const idle = time.Millisecond

// EchoIdle is Echo with a pause before each message, after which both ends are asleep. Its ns/op is
// the mean round trip without the pause.
func EchoIdle(m Meter, n int, conn net.Conn, size int) {
	defer conn.Close()
	message, back := make([]byte, size), make([]byte, size)
	startJob(m, conn, jobEcho, size, n)
	roundTrips.Reset()
	m.ResetTimer()
	for range n {
		time.Sleep(idle)
		start := time.Now()
		exchange(m, conn, message, back)
		roundTrips.Record(time.Since(start))
	}
	m.StopTimer()
	m.ReportMetric(float64(roundTrips.Sum())/float64(n), "ns/op")
	reportRoundTrips(m)
}

// Poll has both ends of a connection of ours poll for longer than any answer takes.
func Poll(m Meter, conn net.Conn) {
	if _, err := conn.Write(job{jobPoll, 0, 0}.bytes()); err != nil {
		m.Fatal(err)
	}
	if err := poll(conn); err != nil {
		m.Fatal(err)
	}
}

// poll is Poll for one end.
func poll(conn net.Conn) error {
	if c, ok := conn.(*rdmanet.Conn); ok {
		return c.SetBusyPoll(20 * time.Millisecond)
	}
	return fmt.Errorf("a %T cannot poll", conn)
}
