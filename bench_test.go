// Package bench compares rdmanet with loopback TCP, with Unix sockets and with
// what the machine itself allows, in one run:
//
//	go test -run '^$' -bench . -count 10 . | tee bench.txt
//	benchstat -col /transport bench.txt
//
// Only numbers of one run can be compared: the speed of a processor varies more
// from minute to minute than what is measured here. That is why the transports
// of one size stand next to each other.
//
// A name says what it measures. size is the length of a Write. procs=one has both
// ends in one process, procs=two has the other end in a process of its own, which
// is this test binary started again. transport is rdma, tcp or unix, or a limit:
// ring is a bare single-producer single-consumer ring in Go memory, memcpy copies
// each message once and does nothing else, pingpong passes one cache line to and
// fro. RDMANET_DEVICE names the device for rdma, as everywhere. checked is rdma with
// Dialer.Checksum.
package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/latency"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

var sizes = []int{64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20}

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case rolePeer:
		os.Exit(servePeer())
	case roleWorker:
		os.Exit(serveOrders())
	}
	status := m.Run()
	closeCrowd()
	stopPeer()
	os.Exit(status)
}

// BenchmarkStream writes messages one after the other. The reader takes whatever
// there is, up to 64 KiB at a time, and the clock stops when it has said that it
// took the last byte of the last message.
func BenchmarkStream(b *testing.B) { runAll(b, streamCases()) }

// BenchmarkEcho sends a message, waits until all of it came back, and sends the
// next at once, so that both ends stay awake.
func BenchmarkEcho(b *testing.B) { runAll(b, echoCases()) }

// BenchmarkEchoPolled is BenchmarkEcho with ends that poll for longer than any answer
// takes, which a socket cannot.
func BenchmarkEchoPolled(b *testing.B) { runAll(b, polledCases()) }

// BenchmarkEchoIdle leaves both ends alone for a while before each message, so
// that both are asleep. Its ns/op is the mean round trip without the pause.
func BenchmarkEchoIdle(b *testing.B) { runAll(b, idleCases()) }

// BenchmarkDial connects, echoes 64 bytes and closes: one connection after the other, or fifty
// goroutines at once that each do so.
func BenchmarkDial(b *testing.B) { runAll(b, dialCases()) }

// BenchmarkChecksum is BenchmarkStream over rdma, without checksums and with them.
func BenchmarkChecksum(b *testing.B) { runAll(b, checksumCases()) }

// TestBenchmarkSmoke runs every benchmark for a few messages, so that one that no
// longer works is found without measuring anything.
func TestBenchmarkSmoke(t *testing.T) {
	for name, cases := range map[string][]benchCase{
		"Stream": streamCases(), "Echo": echoCases(), "EchoPolled": polledCases(), "EchoIdle": idleCases(), "HTTP": httpCases(), "TLS": tlsCases(), "Dial": dialCases(), "DialCrowd": crowdCases(),
		"Beside": besideCases(), "Unread": unreadCases(),
		"Busy": busyCases(), "Scale": smokeCases(scaleCases()), "Copies": copyCases(),
		"Checksum": checksumCases(),
	} {
		for _, c := range cases {
			t.Run(name+"/"+c.name, func(t *testing.T) { c.run(smoke{t}, 3) })
		}
	}
}

// meter is what a benchmark does to its clock; *testing.B is one.
type meter interface {
	testing.TB
	ResetTimer()
	StopTimer()
	ReportMetric(n float64, unit string)
}

// smoke is a meter that measures nothing.
type smoke struct{ *testing.T }

func (smoke) ResetTimer() {}
func (smoke) StopTimer()  {}
func (s smoke) ReportMetric(n float64, unit string) {
	if strings.HasSuffix(unit, "-ns") {
		require.Positive(s, n, unit)
	}
}

// benchCase is one line of the result: run does it n times, and each time moves
// bytes. Where that means nothing bytes is 0 and no rate is printed.
type benchCase struct {
	name  string
	bytes int
	run   func(m meter, n int)
}

func runAll(b *testing.B, cases []benchCase) {
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(c.bytes))
			b.ReportAllocs()
			c.run(b, b.N)
		})
	}
}

// everywhere makes a case of f for both numbers of processes and every transport.
func everywhere(prefix string, bytes int, f func(m meter, n int, at site, transport string)) []benchCase {
	return over(transports, prefix, bytes, f)
}

func over(transports []string, prefix string, bytes int, f func(m meter, n int, at site, transport string)) (cases []benchCase) {
	for _, procs := range []string{"one", "two"} {
		for _, transport := range transports {
			cases = append(cases, benchCase{
				name:  fmt.Sprintf("%sprocs=%s/transport=%s", prefix, procs, transport),
				bytes: bytes,
				run: func(m meter, n int) {
					if (transport == "rdma" || transport == "checked") && !haveRDMA {
						m.Skip("the software device needs Linux on amd64 or arm64")
					}
					f(m, n, siteFor(m, procs), transport)
				},
			})
		}
	}
	return cases
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

func streamCases() (cases []benchCase) {
	for _, size := range sizes {
		prefix := "size=" + sizeName(size) + "/"
		cases = append(cases,
			benchCase{prefix + "procs=one/transport=memcpy", size, func(m meter, n int) { limitMemcpy(m, n, size) }},
			benchCase{prefix + "procs=one/transport=ring", size, func(m meter, n int) { limitRing(m, n, size) }})
		cases = append(cases, everywhere(prefix, size, func(m meter, n int, at site, transport string) {
			stream(m, n, at.dial(m, transport), size)
		})...)
	}
	return cases
}

func checksumCases() (cases []benchCase) {
	for _, size := range []int{64, 1 << 10, 64 << 10, 1 << 20} {
		cases = append(cases, over([]string{"rdma", "checked"}, "size="+sizeName(size)+"/", size, func(m meter, n int, at site, transport string) {
			stream(m, n, at.dial(m, transport), size)
		})...)
	}
	return cases
}

func stream(m meter, n int, conn net.Conn, size int) {
	defer conn.Close()
	message := make([]byte, size)
	send := func(n int) {
		for range n {
			if _, err := conn.Write(message); err != nil {
				m.Fatal(err)
			}
		}
		confirm(m, conn)
	}
	// Buffers are touched and grown before the clock runs.
	warm := min(n, 1<<20/size+16)
	startJob(m, conn, jobStream, size, warm)
	send(warm)
	startJob(m, conn, jobStream, size, n)
	before := statsOf(conn)
	m.ResetTimer()
	send(n)
	m.StopTimer()
	reportWork(m, n, before, statsOf(conn))
}

// statsOf is what a connection of ours has counted; nothing for another.
func statsOf(conn net.Conn) (s rdmanet.ConnStats) {
	if c, ok := conn.(*rdmanet.Conn); ok {
		s = c.Stats()
	}
	return s
}

// reportWork reports what a writer of ours did for each of the n messages of a stream,
// and how large a ring its peer came to.
func reportWork(m meter, n int, before, after rdmanet.ConnStats) {
	if after.MessagesSent == 0 {
		return
	}
	for unit, count := range map[string]uint64{
		"doorbells/op": after.DoorbellsSent - before.DoorbellsSent,
		"credits/op":   after.CreditsReceived - before.CreditsReceived,
		"stalls/op":    after.CreditStalls - before.CreditStalls,
		"parks/op":     after.Parks - before.Parks,
	} {
		m.ReportMetric(float64(count)/float64(n), unit)
	}
	m.ReportMetric(float64(after.WriteBuffer), "ring-B")
}

func echoCases() (cases []benchCase) {
	for _, size := range sizes {
		prefix := "size=" + sizeName(size) + "/"
		if size == sizes[0] {
			cases = append(cases, benchCase{prefix + "procs=one/transport=pingpong", size, limitPingPong})
		}
		cases = append(cases, everywhere(prefix, size, func(m meter, n int, at site, transport string) {
			echo(m, n, at.dial(m, transport), size)
		})...)
	}
	return cases
}

func polledCases() (cases []benchCase) {
	const size = 64
	all := everywhere("size="+sizeName(size)+"/", size, func(m meter, n int, at site, transport string) {
		conn := at.dial(m, transport)
		if _, err := conn.Write(job{jobPoll, 0, 0}.bytes()); err != nil {
			m.Fatal(err)
		}
		if err := poll(conn); err != nil {
			m.Fatal(err)
		}
		echo(m, n, conn, size)
	})
	for _, c := range all {
		if strings.HasSuffix(c.name, "/transport=rdma") {
			cases = append(cases, c)
		}
	}
	return cases
}

// roundTrips is allocated once, so that recording a round trip allocates nothing.
var roundTrips latency.Histogram

func reportRoundTrips(m meter) {
	m.ReportMetric(float64(roundTrips.Quantile(0.5)), "p50-ns")
	m.ReportMetric(float64(roundTrips.Quantile(0.99)), "p99-ns")
}

func echo(m meter, n int, conn net.Conn, size int) {
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

func exchange(m meter, conn net.Conn, message, back []byte) {
	if _, err := conn.Write(message); err != nil {
		m.Fatal(err)
	}
	if _, err := io.ReadFull(conn, back); err != nil {
		m.Fatal(err)
	}
}

// idle is longer than any end spins before it goes to sleep.
const idle = time.Millisecond

func idleCases() []benchCase {
	const size = 64
	return everywhere("size="+sizeName(size)+"/", 0, func(m meter, n int, at site, transport string) {
		conn := at.dial(m, transport)
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
	})
}

func dialCases() (cases []benchCase) {
	for _, goroutines := range []int{1, 50} {
		cases = append(cases, everywhere(fmt.Sprintf("goroutines=%d/", goroutines), 0, func(m meter, n int, at site, transport string) {
			share := (n + goroutines - 1) / goroutines
			m.ResetTimer()
			err := sharing(goroutines, func(int) error { return shortLived(at, transport, share) })
			m.StopTimer()
			if err != nil {
				m.Fatal(err)
			}
		})...)
	}
	return cases
}

// shortLived makes n connections, one after the other.
func shortLived(at site, transport string, n int) error {
	// The order for an echo and the 64 bytes to echo leave in one Write.
	const size = 64
	message := append(job{kind: jobEchoAtOnce, size: size, count: 1}.bytes(), make([]byte, size)...)
	back := make([]byte, size)
	for range n {
		conn, err := dial(context.Background(), transport, at.Jobs[transport])
		if err != nil {
			return err
		}
		if _, err = conn.Write(message); err == nil {
			_, err = io.ReadFull(conn, back)
		}
		if err = errors.Join(err, conn.Close()); err != nil {
			return err
		}
	}
	return nil
}

// job is what a client asks of the other end: size and count of the messages
// that follow on the connection.
type job struct {
	kind        jobKind
	size, count int
}

type jobKind uint64

const (
	// jobStream takes the messages and confirms the last.
	jobStream jobKind = iota + 1
	// jobEcho sends each message back.
	jobEcho
	// jobEchoAtOnce is jobEcho without saying first that it is ready.
	jobEchoAtOnce
	// jobPoll has the connection poll from now on.
	jobPoll
	// jobHold reads nothing, for holdTime.
	jobHold
)

const jobLen = 24

func (j job) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, jobLen), uint64(j.kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(j.size))
	return binary.LittleEndian.AppendUint64(b, uint64(j.count))
}

func parseJob(b []byte) job {
	return job{
		kind:  jobKind(binary.LittleEndian.Uint64(b)),
		size:  int(binary.LittleEndian.Uint64(b[8:])),
		count: int(binary.LittleEndian.Uint64(b[16:])),
	}
}

// startJob gives the other end a job and waits until it is ready for it.
func startJob(m meter, conn net.Conn, kind jobKind, size, count int) {
	if _, err := conn.Write(job{kind, size, count}.bytes()); err != nil {
		m.Fatal(err)
	}
	confirm(m, conn)
}

// confirm waits for the other end's word.
func confirm(m meter, conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		m.Fatal(err)
	}
}
