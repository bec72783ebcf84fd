package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// How long things may take, on a host that is so many times slower than a common one.
var (
	patience = slowly(30 * time.Second)
	lifetime = slowly(2 * time.Minute)
)

func slowly(d time.Duration) time.Duration {
	if n, err := strconv.Atoi(os.Getenv("RDMANET_TEST_SLOW")); err == nil {
		return time.Duration(n) * d
	}
	return d
}

// testAddr is where servers listen.
func testAddr() string {
	if at := os.Getenv("RDMANET_TEST_ADDR"); at != "" {
		return at
	}
	return "127.0.0.1:0"
}

// withoutRDMA comes by TCP, always anew.
var (
	quiet       = slog.New(slog.DiscardHandler)
	withRDMA    = &rdmanet.Dialer{Logger: quiet}
	withoutRDMA = &rdmanet.Dialer{Logger: quiet, Device: "none", RetryRDMA: -1}
)

// A population is the connections of one process: those that it serves, and those of its
// clients with itself and with others.
type population struct {
	seed      uint64
	at        addrs
	listeners []net.Listener
	served    sync.WaitGroup
	serving   sync.WaitGroup
	fail      func(what string, err error)

	mu      sync.Mutex
	targets []*target

	lastDeath                                   atomic.Int64 // of a process with clients, in nanoseconds
	lives, blocks, byRDMA, byTCP, grown, deaths atomic.Int64
}

// addrs are where a server is found on the networks rdma and tcp.
type addrs struct{ rdma, tcp string }

func (a addrs) of(network string) string {
	if network == "rdma" {
		return a.rdma
	}
	return a.tcp
}

// A target is a process with a server.
type target struct {
	at    addrs
	dying atomic.Bool
	lives sync.WaitGroup // of clients in this process
}

// newPopulation begins to serve, by RDMA and by TCP: on one port, but for iWARP, which has
// its ports from TCP and wants one of its own.
func newPopulation(seed uint64, fail func(string, error)) (*population, error) {
	p := &population{seed: seed, fail: fail}
	l, err := rdmanet.Listen("tcp", testAddr())
	if err != nil {
		return nil, err
	}
	p.listeners = []net.Listener{l}
	p.at = addrs{l.Addr().String(), l.Addr().String()}
	if f := l.(*rdmanet.Listener).Fallback(); f != nil && errors.Is(f, verbs.ErrTCPPorts) {
		if l, err = rdmanet.Listen("rdma", testAddr()); err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.listeners = append(p.listeners, l)
		p.at.rdma = l.Addr().String()
	}
	p.targets = []*target{{at: p.at}}
	for i, l := range p.listeners {
		p.served.Go(func() { p.serveAll(l, 1<<63|uint64(i)<<61) })
	}
	return p, nil
}

// close ends the service, when nobody uses it any more.
func (p *population) close() error {
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.served.Wait()
	p.serving.Wait()
	return errors.Join(errs...)
}

// liveAll has so many clients until the context ends.
func (p *population) liveAll(ctx context.Context, clients int) {
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { p.live(ctx, i) })
	}
	all.Wait()
}

// choose takes a server for one more life with it.
func (p *population) choose(rng *rand.Rand) *target {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[rng.IntN(len(p.targets))]
	t.lives.Add(1)
	return t
}

func (p *population) add(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = append(p.targets, t)
}

// remove has nobody choose t any more.
func (p *population) remove(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.targets {
		if p.targets[i] == t {
			p.targets = append(p.targets[:i:i], p.targets[i+1:]...)
			return
		}
	}
}

// willDie is called before a process with clients of this one is killed.
func (p *population) willDie() {
	p.deaths.Add(1)
	p.lastDeath.Store(time.Now().UnixNano())
}

func (p *population) diedSince(t time.Time) bool { return p.lastDeath.Load() > t.UnixNano() }

func (p *population) String() string {
	return fmt.Sprintf("%d connections of its clients, %d ends by RDMA and %d by TCP, %d blocks of hashed bytes, %d rings grown, %d processes killed",
		p.lives.Load(), p.byRDMA.Load(), p.byTCP.Load(), p.blocks.Load(), p.grown.Load(), p.deaths.Load())
}
