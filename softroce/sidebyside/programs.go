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
}

// writeBandwidth is perftest's stream of RDMA WRITEs, which nobody receives.
func writeBandwidth(name string, size int, d time.Duration, options ...string) program {
	args := append([]string{"-F", "-s", strconv.Itoa(size), "-D", strconv.Itoa(int(d.Seconds()))}, options...)
	return program{name: name, measure: func(ctx context.Context) (float64, string, error) {
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
	return program{name: name, measure: func(ctx context.Context) (float64, string, error) {
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
	return program{name: name, measure: func(ctx context.Context) (float64, string, error) {
		perMessage, output, err := runRstream(ctx, size, count, 1)
		return float64(size) / perMessage, output, err
	}}
}

// rstreamEcho has each message answered by one of the same size.
func rstreamEcho(name string, size, trips int) program {
	return program{name: name, measure: func(ctx context.Context) (float64, string, error) {
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
		case err == nil:
			return string(output), nil
		case !refused(output) || time.Since(began) > startLimit:
			return string(output), fmt.Errorf("%s: %w: %s", client[0], err, bytes.TrimSpace(output))
		}
	}
}

// refused says that a client came before its server listened.
func refused(output []byte) bool {
	return bytes.Contains(output, []byte("Couldn't connect to")) || bytes.Contains(output, []byte("Connection refused"))
}

// stream is a stream of this module's benchmarks, over rdmanet or TCP.
func stream(name, bench, transport string, size int, d time.Duration) program {
	b := benchmark{bench, "Stream", transport, size, d.String()}
	return b.program(name, "ns/op", func(ns float64) float64 { return float64(size) / (ns * 1e-9) })
}

// echo is an echo of this module's benchmarks; metric is what it is measured by.
func echo(name, bench, work, transport string, size, trips int, metric string) program {
	b := benchmark{bench, work, transport, size, strconv.Itoa(trips) + "x"}
	return b.program(name, metric, func(ns float64) float64 { return ns * 1e-9 })
}

// A benchmark is one of this module, with its other end in a process of its own.
type benchmark struct {
	path, work, transport string
	size                  int
	howLong               string // -test.benchtime
}

func (b benchmark) program(name, metric string, value func(metric float64) float64) program {
	return program{
		name: name,
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

func (b benchmark) run(ctx context.Context, more ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	name := fmt.Sprintf("^Benchmark%s$/^size=%s$/^procs=two$/^transport=%s$", b.work, strings.ReplaceAll(sizeName(b.size), " ", ""), b.transport)
	args := append([]string{"-test.run", "^$", "-test.bench", name, "-test.benchtime", b.howLong}, more...)
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Env = append(cmd.Environ(), "RDMANET_DEVICE="+clientDevice, "RDMANET_BENCH_PEER_DEVICE="+serverDevice, "RDMANET_BENCH_HOST="+serverHost)
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("no result within %v", runLimit)
	}
	return string(output), err
}
