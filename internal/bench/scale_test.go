package bench

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkScale echoes 64 bytes while conns connections are open between processes that
// do nothing else. active=few uses eight of them, active=all all of them in turn, by
// eight goroutines. Its cases also report what it took to open the connections, one echo
// over each included, and what they use when they are idle: of both ends together,
// beyond what the processes used before.
//
// A process has two of some kinds of things for each connection. Where the limits of
// this machine do not allow one process that many, several share them, over every
// transport alike; pairs says how many have each end.
func BenchmarkScale(b *testing.B) {
	defer closeCrowd()
	Run(b, scaleCases())
}

var crowdSizes = []int{1, 10, 100, 1000, 10_000}

// activeConns is how many connections are made and used at a time.
const activeConns = 8

func scaleCases() (cases []Case) {
	for _, conns := range crowdSizes {
		for _, active := range []string{"few", "all"} {
			for _, transport := range transports {
				cases = append(cases, Case{
					Name: fmt.Sprintf("conns=%d/active=%s/procs=two/transport=%s", conns, active, transport),
					Run: func(m Meter, n int) {
						if transport == "rdma" && !haveRDMA {
							m.Skip("the software device needs Linux on amd64 or arm64")
						}
						scale(m, n, conns, transport, active == "all")
					},
				})
			}
		}
	}
	return cases
}

func scale(m Meter, n, conns int, transport string, inTurn bool) {
	c, err := crowdFor(conns, transport)
	if err != nil {
		m.Fatal(err)
	}
	m.ResetTimer()
	p50, p99, err := c.echo(n, inTurn)
	m.StopTimer()
	if err != nil {
		m.Fatal(err)
	}
	m.ReportMetric(float64(p50), "p50-ns")
	m.ReportMetric(float64(p99), "p99-ns")
	if !inTurn {
		c.report(m)
	}
}

// A crowd is many open connections over one transport.
type crowd struct {
	conns            int
	transport        string
	servers, clients []worker
	opening          time.Duration
	used             usage // by all workers, for the connections
	all              usage // by all workers
	busy             float64
}

// standing are the crowds of one size. A case is run with more and more repetitions,
// and its neighbours use the same connections.
var standing = map[string]*crowd{}

func crowdFor(conns int, transport string) (*crowd, error) {
	for _, c := range standing {
		if c.conns != conns {
			closeCrowd()
			break
		}
	}
	if c := standing[transport]; c != nil {
		return c, nil
	}
	pairs, err := pairsFor(conns)
	if err != nil {
		return nil, err
	}
	c := &crowd{conns: conns, transport: transport}
	standing[transport] = c
	if err := c.open(pairs); err != nil {
		closeCrowd()
		return nil, fmt.Errorf("%d connections over %s: %w", conns, transport, err)
	}
	return c, nil
}

// closeCrowd ends the processes, which closes the connections.
func closeCrowd() {
	for transport, c := range standing {
		delete(standing, transport)
		for _, w := range append(c.clients, c.servers...) {
			if err := w.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "worker process:", err)
			}
		}
	}
}

// mostPairs bounds how many processes a crowd is spread over.
const mostPairs = 16

// pairsFor is how many processes have to share an end of conns connections.
func pairsFor(conns int) (int, error) {
	each, err := endNeeds()
	if err != nil {
		return 0, err
	}
	descriptors, mappings, err := processLimits()
	if err != nil {
		return 0, err
	}
	// What a process has besides: files, threads, and the connections that are being made.
	const reserve = 200
	most := int(min((descriptors-reserve)/each.Descriptors, (mappings-reserve)/each.Mappings))
	pairs := (conns + most - 1) / max(most, 1)
	if most < 1 || pairs > mostPairs {
		return 0, fmt.Errorf("%d connections need %d descriptors and %d mappings at each end; a process here may have %d (ulimit -Hn) and %d (sysctl vm.max_map_count), and %d processes are too few: raise these limits",
			conns, int64(conns)*each.Descriptors, int64(conns)*each.Mappings, descriptors, mappings, mostPairs)
	}
	return pairs, nil
}

// endNeeds is how many descriptors and mappings one end of a connection of ours takes,
// at least one of each. There are so many that what they share counts for little.
var endNeeds = sync.OnceValues(func() (u usage, err error) {
	few := usage{Descriptors: 1, Mappings: 1}
	if !haveRDMA {
		return few, nil
	}
	c := &crowd{conns: 512, transport: "rdma"}
	err = c.open(1)
	for _, w := range append(c.clients, c.servers...) {
		err = errors.Join(err, w.stop())
	}
	ends := int64(2 * c.conns)
	return usage{
		Descriptors: max((c.used.Descriptors+ends-1)/ends, few.Descriptors),
		Mappings:    max((c.used.Mappings+ends-1)/ends, few.Mappings),
	}, err
})

// settle is longer than ends poll, or keep a goroutine for what the peer may say, when
// they have nothing to do any more.
const settle = 50 * time.Millisecond

func (c *crowd) open(pairs int) error {
	var before usage
	var addresses []string
	for range pairs {
		for _, into := range []*[]worker{&c.servers, &c.clients} {
			w, err := startWorker()
			if err != nil {
				return err
			}
			*into = append(*into, w)
		}
	}
	for _, w := range c.servers {
		a, err := w.do(order{Op: opListen, Transport: c.transport})
		if err != nil {
			return err
		}
		addresses = append(addresses, a.Address)
	}
	before, err := c.measure()
	if err != nil {
		return err
	}
	start := time.Now()
	err = sharing(pairs, func(i int) error {
		share := c.conns/pairs + min(max(c.conns%pairs-i, 0), 1)
		_, err := c.clients[i].do(order{Op: opOpen, Transport: c.transport, Address: addresses[i], Count: share, Active: max(activeConns/pairs, 1)})
		return err
	})
	c.opening = time.Since(start)
	if err != nil {
		return err
	}
	time.Sleep(settle)
	if c.all, err = c.measure(); err != nil {
		return err
	}
	c.used = c.all.minus(before)
	c.busy, err = c.idle()
	return err
}

func (c *crowd) workers() []worker {
	return append(c.servers[:len(c.servers):len(c.servers)], c.clients...)
}

// measure adds up what all workers use.
func (c *crowd) measure() (sum usage, err error) {
	for _, w := range c.workers() {
		a, err := w.do(order{Op: opMeasure})
		if err != nil {
			return sum, err
		}
		sum = sum.plus(a.Usage)
	}
	return sum, nil
}

// idle is how many processors all workers keep busy while nobody asks for anything.
func (c *crowd) idle() (busy float64, err error) {
	interval := 100 * time.Millisecond
	if c.conns >= 1000 {
		interval = time.Second // to ask all workers takes some time of each
	}
	cpu := func() (sum time.Duration) {
		for _, w := range c.workers() {
			a, werr := w.do(order{Op: opCPU})
			err = errors.Join(err, werr)
			sum += a.CPU
		}
		return sum
	}
	before, start := cpu(), time.Now()
	time.Sleep(interval)
	return float64(cpu()-before) / float64(time.Since(start)), err
}

// echo makes n round trips and returns the percentiles of the slowest process.
func (c *crowd) echo(n int, inTurn bool) (p50, p99 time.Duration, err error) {
	clients := c.clients
	if !inTurn {
		clients = clients[:1]
	}
	clients = clients[:min(len(clients), n)]
	answers := make([]answer, len(clients))
	err = sharing(len(clients), func(i int) (err error) {
		share := n/len(clients) + min(max(n%len(clients)-i, 0), 1)
		answers[i], err = clients[i].do(order{Op: opEcho, Count: share, Active: max(activeConns/len(clients), 1), InTurn: inTurn})
		return err
	})
	for _, a := range answers {
		p50, p99 = max(p50, a.P50), max(p99, a.P99)
	}
	return p50, p99, err
}

func (c *crowd) report(m Meter) {
	n := float64(c.conns)
	m.ReportMetric(n/c.opening.Seconds(), "conns/s")
	m.ReportMetric(float64(len(c.clients)), "pairs")
	for unit, bytes := range map[string]int64{
		"rss-B/conn":        c.used.Resident,
		"pss-B/conn":        c.used.Proportional,
		"heap-B/conn":       c.used.Heap,
		"registered-B/conn": c.used.Registered,
		"fds/conn":          c.used.Descriptors,
		"maps/conn":         c.used.Mappings,
	} {
		m.ReportMetric(float64(max(bytes, 0))/n, unit)
	}
	m.ReportMetric(float64(c.all.Proportional)/1e6, "pss-MB")
	m.ReportMetric(c.busy, "idle-cpu")
}

// smokeCases are the cases that are small enough for a test.
func smokeCases(cases []Case) (small []Case) {
	for _, c := range cases {
		if !strings.Contains(c.Name, "conns=1000") {
			small = append(small, c)
		}
	}
	return small
}
