// Package rdmanet_test compares rdmanet with loopback TCP, with Unix sockets and with
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
// fro. RDMANET_DEVICE names the device for rdma, as everywhere.
//
// What runs here, and all other benchmarks, are in internal/bench.
package rdmanet_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/bench"
)

func TestMain(m *testing.M) { os.Exit(bench.Main(m)) }

// BenchmarkStream writes messages one after the other. The reader takes whatever
// there is, up to 64 KiB at a time, and the clock stops when it has said that it
// took the last byte of the last message.
func BenchmarkStream(b *testing.B) { bench.Run(b, streamCases()) }

// BenchmarkEcho sends a message, waits until all of it came back, and sends the
// next at once, so that both ends stay awake.
func BenchmarkEcho(b *testing.B) { bench.Run(b, echoCases()) }

// BenchmarkEchoPolled is BenchmarkEcho with ends that poll for longer than any answer
// takes, which a socket cannot.
func BenchmarkEchoPolled(b *testing.B) { bench.Run(b, polledCases()) }

// BenchmarkEchoIdle leaves both ends alone for a while before each message, so
// that both are asleep. Its ns/op is the mean round trip without the pause.
func BenchmarkEchoIdle(b *testing.B) { bench.Run(b, idleCases()) }

// BenchmarkDial connects, echoes 64 bytes and closes: one connection after the other, or fifty
// goroutines at once that each do so, which also echo 100 KiB.
func BenchmarkDial(b *testing.B) { bench.Run(b, dialCases()) }

// TestBenchmarkSmoke runs every benchmark for a few messages, so that one that no
// longer works is found without measuring anything.
func TestBenchmarkSmoke(t *testing.T) {
	bench.Try(t, map[string][]bench.Case{
		"Stream": streamCases(), "Echo": echoCases(), "EchoPolled": polledCases(), "EchoIdle": idleCases(), "Dial": dialCases(),
	})
}

var sizes = []int{64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20}

// sized begins the name of a case.
func sized(size int) string { return "size=" + bench.SizeName(size) + "/" }

func streamCases() (cases []bench.Case) {
	for _, size := range sizes {
		cases = append(cases,
			bench.Case{Name: sized(size) + "procs=one/transport=memcpy", Bytes: size, Run: func(m bench.Meter, n int) { bench.Memcpy(m, n, size) }},
			bench.Case{Name: sized(size) + "procs=one/transport=ring", Bytes: size, Run: func(m bench.Meter, n int) { bench.Ring(m, n, size) }})
		cases = append(cases, bench.Everywhere(sized(size), size, func(m bench.Meter, n int, at bench.Site, transport string) {
			bench.Stream(m, n, at.Dial(m, transport), size)
		})...)
	}
	return cases
}

func echoCases() (cases []bench.Case) {
	for _, size := range sizes {
		if size == sizes[0] {
			cases = append(cases, bench.Case{Name: sized(size) + "procs=one/transport=pingpong", Bytes: size, Run: bench.PingPong})
		}
		cases = append(cases, bench.Everywhere(sized(size), size, func(m bench.Meter, n int, at bench.Site, transport string) {
			bench.Echo(m, n, at.Dial(m, transport), size)
		})...)
	}
	return cases
}

func polledCases() (cases []bench.Case) {
	const size = 64
	all := bench.Everywhere(sized(size), size, func(m bench.Meter, n int, at bench.Site, transport string) {
		conn := at.Dial(m, transport)
		bench.Poll(m, conn)
		bench.Echo(m, n, conn, size)
	})
	for _, c := range all {
		if strings.HasSuffix(c.Name, "/transport=rdma") {
			cases = append(cases, c)
		}
	}
	return cases
}

func idleCases() []bench.Case {
	const size = 64
	return bench.Everywhere(sized(size), 0, func(m bench.Meter, n int, at bench.Site, transport string) {
		bench.EchoIdle(m, n, at.Dial(m, transport), size)
	})
}

func dialCases() (cases []bench.Case) {
	for _, work := range []struct {
		name             string
		goroutines, size int
	}{
		{"goroutines=1/", 1, 64}, {"goroutines=50/", 50, 64}, {"goroutines=50/size=100KiB/", 50, 100 << 10},
		{"goroutines=50/size=1MiB/", 50, 1 << 20}, {"goroutines=50/size=4MiB/", 50, 4 << 20},
	} {
		cases = append(cases, bench.Everywhere(work.name, 0, func(m bench.Meter, n int, at bench.Site, transport string) {
			bench.Dials(m, n, work.goroutines, work.size, at, transport)
		})...)
	}
	return cases
}
