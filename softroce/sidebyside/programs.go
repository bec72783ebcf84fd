package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// The two ends of the link, as softroce/bench sets it up.
const (
	clientDevice = "rxe0"
	serverDevice = "rxe1"
	serverHost   = "10.9.0.2"
)

const (
	// startLimit is how long a server may take until it listens.
	startLimit = 10 * time.Second
	// runLimit is how long one measurement may take: rsockets are known to stall.
	runLimit = 30 * time.Second
)

// A program measures one thing: the throughput of a stream in bytes a second, or the time
// of a round trip in seconds. It returns what was printed as well.
type program struct {
	name    string
	measure func(ctx context.Context) (value float64, output string, err error)
	// profile runs it once more, with a profile of its processor time. Only what is of
	// this module can.
	profile func(ctx context.Context, file string) (output string, err error)
	// rdma means that the bytes are to go by the soft-RoCE devices, and not past them.
	rdma bool
	// packets is how many packets the work that was printed takes at the least.
	packets func(output string) (int, error)
}

// writeBandwidth is perftest's stream of RDMA WRITEs, which nobody receives.
func writeBandwidth(name string, size int, d time.Duration, options ...string) program {
	args := append([]string{"-F", "-s", strconv.Itoa(size), "-D", strconv.Itoa(int(d.Seconds()))}, options...)
	return program{name: name, rdma: true, measure: func(ctx context.Context) (float64, string, error) {
		output, err := perftest(ctx, "ib_write_bw", args)
		if err != nil {
			return 0, output, err
		}
		v, err := parsePerftestRate(output, size)
		return v, output, err
	}}
}

// sendLatency is perftest's ping-pong of SENDs.
func sendLatency(name string, size, trips int, options ...string) program {
	args := append([]string{"-F", "-s", strconv.Itoa(size), "-n", strconv.Itoa(trips)}, options...)
	return program{name: name, rdma: true, measure: func(ctx context.Context) (float64, string, error) {
		output, err := perftest(ctx, "ib_send_lat", args)
		if err != nil {
			return 0, output, err
		}
		v, err := parsePerftestTrip(output)
		return v, output, err
	}}
}

func perftest(ctx context.Context, tool string, args []string) (string, error) {
	return meet(ctx,
		append([]string{tool, "-d", serverDevice}, args...),
		append(append([]string{tool, "-d", clientDevice}, args...), serverHost))
}

// rstream is rsockets' own stream: so many messages there, and as many back.
func rstream(name string, size, count int) program {
	return program{name: name, rdma: true, measure: func(ctx context.Context) (float64, string, error) {
		perMessage, output, err := runRstream(ctx, size, count, 1)
		return float64(size) / perMessage, output, err
	}}
}

// rstreamEcho has each message answered by one of the same size.
func rstreamEcho(name string, size, trips int) program {
	return program{name: name, rdma: true, measure: func(ctx context.Context) (float64, string, error) {
		perMessage, output, err := runRstream(ctx, size, 1, trips)
		return 2 * perMessage, output, err
	}}
}

func runRstream(ctx context.Context, size, count, iterations int) (perMessage float64, output string, err error) {
	args := []string{"-T", "b", "-S", strconv.Itoa(size), "-C", strconv.Itoa(count), "-I", strconv.Itoa(iterations)}
	output, err = meet(ctx,
		append([]string{"rstream", "-b", serverHost}, args...),
		append([]string{"rstream", "-s", serverHost}, args...))
	if err != nil {
		return 0, output, err
	}
	perMessage, err = parseRstream(output)
	return perMessage, output, err
}

// meet starts a server and then clients, until one of them finds it listening, and
// returns what that client printed.
func meet(ctx context.Context, server, client []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	serve := exec.CommandContext(ctx, server[0], server[1:]...)
	if err := serve.Start(); err != nil {
		return "", err
	}
	defer func() {
		cancel()
		_ = serve.Wait() // killed unless it has ended
	}()
	for began := time.Now(); ; {
		output, err := exec.CommandContext(ctx, client[0], client[1:]...).CombinedOutput()
		switch {
		case ctx.Err() != nil:
			return string(output), fmt.Errorf("it stalled: no result within %v", runLimit)
		case refused(output) && time.Since(began) <= startLimit:
		case err == nil:
			return string(output), nil
		default:
			return string(output), fmt.Errorf("%s: %w: %s", client[0], err, bytes.TrimSpace(output))
		}
	}
}

// refused reports whether a client came before its server listened. cmtime takes that for a result, and
// names the reason that InfiniBand has for it: no such service.
func refused(output []byte) bool {
	for _, said := range []string{"Couldn't connect to", "Connection refused", "RDMA_CM_EVENT_REJECTED, error: 8\n"} {
		if bytes.Contains(output, []byte(said)) {
			return true
		}
	}
	return false
}

// stream is a stream of this module's benchmarks, over rdmanet or TCP.
func stream(name, bench, transport string, size int, d time.Duration) program {
	b := benchmark{path: bench, work: "Stream", transport: transport, size: size, howLong: d.String()}
	return b.program(name, "ns/op", func(ns float64) float64 { return float64(size) / (ns * 1e-9) })
}

// echo is an echo of this module's benchmarks; metric is what it is measured by.
func echo(name, bench, work, transport string, size, trips int, metric string) program {
	b := benchmark{path: bench, work: work, transport: transport, size: size, howLong: strconv.Itoa(trips) + "x"}
	return b.program(name, metric, func(ns float64) float64 { return ns * 1e-9 })
}

// crowdWork is the benchmark of dials at once.
const crowdWork = "DialCrowd"

// dials is a benchmark of this module that dials, echoes and closes: count operations of
// so many dials together. It comes to dials a second that succeeded.
func dials(name, bench, work, transport string, count, dials int) program {
	b := benchmark{path: bench, work: work, transport: transport, crowd: dials, howLong: strconv.Itoa(count) + "x"}
	p := b.program(name, "ns/op", nil)
	p.measure = func(ctx context.Context) (float64, string, error) {
		output, err := b.run(ctx)
		if err != nil {
			return 0, output, err
		}
		ns, err := parseBenchmark(output, "ns/op")
		if err != nil {
			return 0, output, err
		}
		failed, _ := parseFailures(output) // which only a crowd counts
		return dialRate(dials, failed, float64(count)*ns*1e-9), output, nil
	}
	p.packets = func(string) (int, error) { return dials, nil }
	return p
}

// failedUnit is what a crowd of dials counts.
const failedUnit = "failed/op"

// rsockets dials with a program of their own, see softroce/rsdial.
func rsockets(name, path, option string, dials int) program {
	const port = "7471"
	return program{name: name, rdma: true,
		measure: func(ctx context.Context) (float64, string, error) {
			output, err := meet(ctx,
				[]string{path, "-s", serverHost, port},
				[]string{path, option, serverHost, port, strconv.Itoa(dials)})
			if err != nil {
				return 0, output, err
			}
			seconds, failed, err := parseDials(output)
			return dialRate(dials, failed, seconds), output, err
		},
		packets: func(string) (int, error) { return dials, nil },
	}
}

// crowd is the benchmark of dials at once, and comes to the seconds until all of them have
// returned. A dial that fails may return early or late, so then there is no result.
func crowd(name, bench string, dials int) program {
	b := benchmark{path: bench, work: crowdWork, transport: "rdma", crowd: dials, howLong: "1x"}
	p := b.program(name, "dialed-ns", func(ns float64) float64 { return ns * 1e-9 })
	measure := p.measure
	p.measure = func(ctx context.Context) (float64, string, error) {
		seconds, output, err := measure(ctx)
		if failed, _ := parseFailures(output); err == nil && failed > 0 {
			err = someFailed(failed, dials)
		}
		return seconds, output, err
	}
	p.packets = func(string) (int, error) { return dials, nil }
	return p
}

// cmtime is rdma-core's measure of its connection manager. It makes all QPs first.
func cmtime(name string, dials int) program {
	const port = "7472"
	return program{name: name, rdma: true,
		measure: func(ctx context.Context) (float64, string, error) {
			output, err := meet(ctx,
				[]string{"cmtime", "-b", serverHost, "-p", port},
				[]string{"cmtime", "-s", serverHost, "-p", port, "-c", strconv.Itoa(dials)})
			if err != nil {
				return 0, output, err
			}
			seconds, failed, err := parseCmtime(output)
			if err == nil && failed > 0 {
				err = someFailed(failed, dials)
			}
			return seconds, output, err
		},
		packets: func(string) (int, error) { return dials, nil },
	}
}

func someFailed(failed, dials int) error { return fmt.Errorf("%d of %d failed", failed, dials) }

func dialRate(dials, failed int, seconds float64) float64 { return float64(dials-failed) / seconds }

// A benchmark is one of this module, with its other end in a process of its own.
type benchmark struct {
	path, work, transport string // work is the name behind "Benchmark", with the levels that come first
	size                  int
	howLong               string // -test.benchtime
	crowd                 int    // of crowdWork: how many dial at once
}

func (b benchmark) program(name, metric string, value func(metric float64) float64) program {
	return program{
		name: name, rdma: b.transport != "tcp",
		packets: func(output string) (int, error) {
			n, err := parseCount(output)
			if b.work == "Stream" { // several messages may share a packet
				n = n * b.size / (4 << 10)
			}
			return n, err
		},
		measure: func(ctx context.Context) (float64, string, error) {
			output, err := b.run(ctx)
			if err != nil {
				return 0, output, err
			}
			v, err := parseBenchmark(output, metric)
			return value(v), output, err
		},
		profile: func(ctx context.Context, file string) (string, error) {
			return b.run(ctx, "-test.cpuprofile", file)
		},
	}
}

// pattern is what -test.bench takes for it.
func (b benchmark) pattern() string {
	levels := strings.Split("Benchmark"+b.work, "/")
	if b.size > 0 {
		levels = append(levels, "size="+strings.ReplaceAll(sizeName(b.size), " ", ""))
	}
	levels = append(levels, "procs=two", "transport="+b.transport)
	return "^" + strings.Join(levels, "$/^") + "$"
}

func (b benchmark) run(ctx context.Context, more ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	args := append([]string{"-test.run", "^$", "-test.bench", b.pattern(), "-test.benchtime", b.howLong}, more...)
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Env = append(cmd.Environ(), "RDMANET_DEVICE="+clientDevice, "RDMANET_BENCH_PEER_DEVICE="+serverDevice, "RDMANET_BENCH_HOST="+serverHost, "RDMANET_BENCH_SMC=1",
		"RDMANET_BENCH_CROWD="+strconv.Itoa(b.crowd))
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("no result within %v", runLimit)
	}
	return string(output), err
}
