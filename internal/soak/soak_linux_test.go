package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/testseed"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

var (
	soakFor = flag.Duration("soak", time.Second, "how long TestSoak takes")
	clients = flag.Int("clients", 16, "how many clients TestSoak has in its own process")
	cycles  = flag.Int("cycles", 500, "how many connections TestCycles makes")
)

// seedVar replays a run, as far as processes and goroutines take the same turns.
const seedVar = "RDMANET_TEST_SEED"

func TestMain(m *testing.M) {
	if task := os.Getenv(guestVar); task != "" {
		if err := runGuest(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A host is a population in the process of a test.
type host struct {
	*population
	t      *testing.T
	before inventory
	failed context.Context // with the first failure as its cause
}

func newHost(t *testing.T) *host {
	seed := testseed.From(t, seedVar)
	before, err := takeInventory()
	require.NoError(t, err)
	failed, fail := context.WithCancelCause(context.Background())
	t.Cleanup(func() { fail(nil) })
	p, err := newPopulation(seed, func(what string, err error) { fail(fmt.Errorf("%s: %w", what, err)) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.close() })
	return &host{p, t, before, failed}
}

// requireWell sees that nothing has failed so far.
func (h *host) requireWell() {
	h.t.Helper()
	require.NoError(h.t, context.Cause(h.failed))
}

// memory is what the process has, if it is to be compared: the warm-up was long enough.
func (h *host) memory(compare bool) *memory {
	h.t.Helper()
	if !compare {
		return nil
	}
	// A lane that carries nothing is kept for a while, and how many there are is chance.
	require.Eventually(h.t, func() bool { return len(rdmanet.Lanes()) == 0 }, 2*time.Minute, 10*time.Millisecond, "lanes without connections stay")
	m, err := takeMemory()
	require.NoError(h.t, err)
	return &m
}

// leave ends it all. Nothing may be left, and memory must not have grown beyond baseline, unless
// that is nil.
func (h *host) leave(baseline *memory) {
	t := h.t
	t.Helper()
	end := h.memory(baseline != nil)
	for tries := 4; baseline != nil && tries > 0 && end.growth(*baseline) != ""; tries-- { // a leak stays
		end = h.memory(true)
	}
	require.NoError(t, h.close())
	h.requireWell()
	require.Empty(t, h.before.left(), "left behind")
	require.Zero(t, rdmanet.ReadStats().Listening.Malformed)
	t.Log(h)
	if baseline != nil {
		t.Logf("resident memory %.3f of what it was after warming up, %.3f of the heap in use",
			float64(end.resident)/float64(baseline.resident), float64(end.heap)/float64(baseline.heap))
		require.Empty(t, end.growth(*baseline))
	}
}

// season has everything go on for so long.
func (h *host) season(d time.Duration) {
	h.t.Helper()
	ctx, stop := context.WithTimeout(h.failed, d)
	defer stop()
	var all sync.WaitGroup
	ends := make(chan error, guests)
	for i := range guests {
		all.Go(func() { ends <- h.runGuests(ctx, h.t, i) })
	}
	all.Go(func() { h.liveAll(ctx, *clients) })
	all.Go(func() { h.tell(ctx) })
	all.Wait()
	for range guests {
		require.NoError(h.t, <-ends)
	}
	h.requireWell()
}

// tell tells now and then how far it has come.
func (h *host) tell(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.t.Log(h)
		case <-ctx.Done():
			return
		}
	}
}

// TestSoak has connections of one process and of several live in all the ways there are.
func TestSoak(t *testing.T) {
	h := newHost(t)
	var baseline *memory
	left := *soakFor
	if left >= 30*time.Second {
		warmUp := min(left/3, 2*time.Minute)
		h.season(warmUp)
		baseline = h.memory(true)
		left -= warmUp
	}
	h.season(left)
	for end := time.Now().Add(lifetime); (h.byTCP.Load() == 0 || h.grown.Load() == 0) && time.Now().Before(end); {
		h.season(time.Second) // a busy machine has not come to all of it
	}
	h.leave(baseline)
	require.Positive(t, h.byTCP.Load())
	require.Positive(t, h.grown.Load())
}

// TestCycles makes connections one after the other, each for one exchange, with its own
// process and another.
func TestCycles(t *testing.T) {
	const clients = 4
	h := newHost(t)
	g, err := startGuest(t, h.seed, 0, h.at)
	require.NoError(t, err)
	h.add(g.t)
	cycle := func(n int) {
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				for j := i; j < n && h.failed.Err() == nil; j += clients {
					if err := h.cycle(j); err != nil {
						h.fail("a cycle", err)
					}
				}
			})
		}
		all.Wait()
		h.requireWell()
	}
	cycle(*cycles / 5)
	baseline := h.memory(*cycles >= 10_000)
	began := time.Now()
	cycle(*cycles - *cycles/5)
	t.Logf("%.0f connections a second", float64(*cycles-*cycles/5)/time.Since(began).Seconds())
	require.NoError(t, g.leave(h.population))
	h.leave(baseline)
}

// cycle is one connection, one block and its answer. Every tenth comes by TCP.
func (h *host) cycle(i int) (err error) {
	rng := rand.New(rand.NewPCG(h.seed, uint64(i)))
	t := h.choose(rng)
	defer t.lives.Done()
	network, dialer := "rdma", withRDMA
	if i%10 == 0 {
		network, dialer = "tcp", withoutRDMA
	}
	made, err := dialer.Dial(network, t.at.of(network))
	if err != nil {
		return err
	}
	c := made.(conn)
	defer h.closed(c)
	l := newLife(h.population, c, rng)
	defer l.end()
	if err := l.ask(64, askAnswer, 64); err != nil {
		return err
	}
	h.lives.Add(1)
	return errors.Join(l.answered(1), l.part(c))
}
