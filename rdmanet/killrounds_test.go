//go:build linux

package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/racedetector"
	"github.com/rdmanet/go-rdmanet/internal/testseed"
)

// seedVar replays a randomized test.
const seedVar = "RDMANET_TEST_SEED"

// testSeed is the seed of a randomized test.
func testSeed(t testing.TB) uint64 { return testseed.From(t, seedVar) }

// goneWithin is how soon it is noticed that the process of a peer has died: on the
// software device by the hang-up of a socket, elsewhere by what its kernel sends.
func goneWithin() time.Duration {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		return soon
	}
	return 50 * time.Millisecond
}

// TestKillRounds kills a process at a random moment, time and again: before its
// connections stand, in the midst of their streams, when these are half-closed, and when
// they are closed. The other process lives on. What it got is what had been said, its
// calls end for that reason, and it serves the next process.
func TestKillRounds(t *testing.T) {
	rounds := slice(300)
	switch {
	case testing.Short():
		rounds = 10
	case racedetector.Enabled:
		rounds = min(rounds, 30)
	}
	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	before := leaktest.Take()
	var sides []*thisSide
	for _, fl := range flavours() {
		if !testing.Short() || fl.name == "default" {
			sides = append(sides, newThisSide(t, fl, seed))
		}
	}
	next := startRemote(t)
	for range rounds {
		killed := next
		next = startRemote(t) // meanwhile
		sides[rng.IntN(len(sides))].round(killed, rng, func(*remote) {
			time.Sleep(slowly(time.Duration(rng.Int64N(1 << (10 + rng.IntN(16))))))
		})
	}
	next.end()
	var all tally
	for _, s := range sides {
		require.NoError(t, s.l.Close())
		<-s.served
		require.Zero(t, s.l.Stats().Malformed)
		all.add(&s.tally)
	}
	require.Empty(t, before.Wait(leftovers), "leaked after %d rounds", rounds)
	t.Logf("%d rounds: %v", rounds, &all)
	if rounds >= 200 {
		require.True(t, all.dials > 0 && all.cut > 0 && all.half > 0 && all.whole > 0, "no process was killed at some of the moments")
	}
}

// leftovers tells what the process still has of connections.
func leftovers() (left string) {
	if n := MemoryInUse(); n > 0 {
		left = fmt.Sprintf("%d bytes of rings\n", n)
	}
	for _, c := range Conns() {
		left += fmt.Sprintf("connection %+v\n", c)
	}
	for _, l := range Listeners() {
		left += fmt.Sprintf("listener %+v\n", l)
	}
	return left
}

// A tally counts what the kills met.
type tally struct {
	dials int // that did not come to a connection
	cut   int // connections both of whose directions were cut
	half  int // where one had come to its end
	whole int // both

	latest time.Duration // from the death to the end of the last call, without stalls
}

func (a *tally) add(b *tally) {
	a.dials += b.dials
	a.cut += b.cut
	a.half += b.half
	a.whole += b.whole
	a.latest = max(a.latest, b.latest)
}

func (a *tally) String() string {
	return fmt.Sprintf("%d dials, %d connections and %d half-closed ones cut, %d were through; noticed within %.2f of the time allowed", a.dials, a.cut, a.half, a.whole, a.latest.Seconds()/goneWithin().Seconds())
}

// A thisSide is what this process has in one flavour.
type thisSide struct {
	t       *testing.T
	fl      flavour
	seed    uint64
	l       *Listener
	at      string // where the process of this round listens
	served  chan struct{}
	handled atomic.Uint64 // connections of Accept whose calls have ended
	tally

	mu   sync.Mutex
	ends []callEnd
}

// A callEnd is how and when a call ended.
type callEnd struct {
	what string
	err  error
	at   time.Time
}

func newThisSide(t *testing.T, fl flavour, seed uint64) *thisSide {
	fl.dialer.Logger = quiet
	s := &thisSide{t: t, fl: fl, seed: seed, l: fl.newListener(t), served: make(chan struct{})}
	go func() {
		defer close(s.served)
		for {
			c, err := s.l.AcceptConn()
			if err != nil {
				return
			}
			go func() {
				s.converse(c, false)
				s.handled.Add(1)
			}()
		}
	}()
	return s
}

// converse notes how the calls on a connection end.
func (s *thisSide) converse(c *Conn, dialled bool) {
	var mu sync.Mutex
	cut := 0
	converse(c, s.seed, dialled, func(what string, err error) {
		if err != nil {
			mu.Lock()
			cut++
			mu.Unlock()
			s.ended(what, err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	*[]*int{&s.whole, &s.half, &s.cut, &s.cut}[cut]++
}

func (s *thisSide) ended(what string, err error) {
	end := callEnd{what, err, time.Now()}
	s.mu.Lock()
	s.ends = append(s.ends, end)
	s.mu.Unlock()
}

// dial connects to a process as often as it is there.
func (s *thisSide) dial(at string) {
	for {
		c, err := s.fl.dialer.dial(context.Background(), "rdma", at)
		if err != nil {
			s.ended("Dial", err)
			s.mu.Lock()
			s.dials++
			s.mu.Unlock()
			return
		}
		s.converse(c, true)
	}
}

// round has connections with a process, which dials, listens, or does both, and kills it
// after a while.
func (s *thisSide) round(killed *remote, rng *rand.Rand, while func(*remote)) {
	ways, dialers := 1+rng.IntN(3), 1+rng.IntN(4)
	a := RemoteConverse{Flavour: s.fl.name, Seed: s.seed}
	if ways&1 != 0 {
		a.Dial, a.Dialers = s.l.Addr().String(), dialers
	}
	s.at = call[string](killed, "Listen", RemoteListen{Flavour: s.fl.name})
	begin[int](killed, "Converse", a)
	var dials sync.WaitGroup
	if ways&2 != 0 {
		for range dialers {
			dials.Go(func() { s.dial(s.at) })
		}
	}
	while(killed)
	stood := watchStalls()
	defer stood.stop()
	killedAt := time.Now()
	death := killed.kill()
	within(s.t, patience, "Dial or calls on a connection", dials.Wait)
	require.Eventually(s.t, func() bool { return s.quiet() }, patience, time.Millisecond, "calls go on, or clients are waited for: %+v", s.l.Stats())
	stalled := stood.total()
	killed.end()
	status := killed.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.Equal(s.t, syscall.SIGKILL, status.Signal(), "the process had ended before: %v", killed.cmd.ProcessState)

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.ends {
		require.False(s.t, end.at.Before(killedAt), "%s before the kill: %v", end.what, end.err)
		require.NoError(s.t, isDeath(end), "%s", end.what)
		late := end.at.Sub(death) - stalled
		s.latest = max(s.latest, late)
		promise(s.t, end.what, late, goneWithin())
	}
	s.ends = s.ends[:0]
}

// requireNoEnds sees that no call has failed so far.
func (s *thisSide) requireNoEnds() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(s.t, s.ends)
}

// through is how many connections have come to their end.
func (s *thisSide) through() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole
}

// quiet reports whether nothing of a dead process is left: each client was accepted or failed,
// and those that were accepted are through. What has come by a lane and was not taken in yet
// counts nowhere, so its lanes are to have ended first.
func (s *thisSide) quiet() bool {
	if len(s.l.links.Lanes()) > 0 {
		return false
	}
	l, hangups := s.l.Stats(), s.l.requestStats().Hangup // who left before the request
	return l.HalfOpen == 0 && inHand(l) == l.Established-hangups && l.Pending == 0 &&
		l.Accepted == l.Established && s.handled.Load() == l.Accepted
}

// isDeath says what is wrong with the end of a call if the peer's process has died.
func isDeath(end callEnd) error {
	var op *net.OpError
	switch {
	case !errors.As(end.err, &op), op.Timeout():
	case errors.Is(end.err, syscall.ECONNRESET) && errors.Is(end.err, ErrPeerGone):
		return nil
	case end.what == "Write" && errors.Is(end.err, syscall.ENOTCONN): // from CloseWrite, as over TCP
		return nil
	case end.what == "Dial" && errors.Is(end.err, syscall.ECONNREFUSED):
		return nil
	}
	return fmt.Errorf("not the end of a peer that died: %w", end.err)
}

// stalls adds up how long the process got no processor.
type stalls struct {
	sum  atomic.Int64
	stop func()
}

func watchStalls() *stalls {
	const tick = time.Millisecond
	ticker, done := time.NewTicker(tick), make(chan struct{})
	s := &stalls{stop: func() { ticker.Stop(); close(done) }}
	go func() {
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
			now := time.Now()
			s.sum.Add(int64(max(now.Sub(last)-2*tick, 0)))
			last = now
		}
	}()
	return s
}

func (s *stalls) total() time.Duration { return time.Duration(s.sum.Load()) }
