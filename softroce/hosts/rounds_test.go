//go:build linux

package hosts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// seedVar replays testKillRounds.
	seedVar = "RDMANET_TEST_SEED"

	// roundsVar is how many rounds testKillRounds has; unless it is set, between two
	// hosts as many as killTime allows.
	roundsVar = "RDMANET_TEST_ROUNDS"
	killTime  = time.Minute
	minRounds = 10
)

// number is a number that the environment may set.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err, name)
	return n
}

// testKillRounds kills a process on one host at a random moment, time and again: while it
// connects, in the midst of its streams, while it waits. One process on the other host
// lives through all of it. What it got is what was sent, its calls end in time and with a
// reset, and of all the dead the kernel has nothing left in the end.
func testKillRounds(t *testing.T, w *world) {
	rounds, seed := int(number(t, roundsVar, 0)), number(t, seedVar, rand.Uint64())
	if rounds == 0 && w[0].software {
		rounds = minRounds // rdmanet's own tests have more
	}
	t.Logf("%s=%d replays it", seedVar, seed)
	peers := [2]*process{w[0].start(t), w[1].start(t)}
	var toKill [2]<-chan launched // started while the round before is played
	for rank, h := range w {
		toKill[rank] = h.launch(os.Getenv(deviceVar))
	}
	var met tally
	began, n := time.Now(), 0
	for ; n < rounds || rounds == 0 && (n < minRounds || time.Since(began) < killTime); n++ {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		rank := rng.IntN(2)
		killed := (<-toKill[rank]).join(t)
		toKill[rank] = w[rank].launch(os.Getenv(deviceVar))
		r := round{t: t, rng: rng, killed: killed, peer: peers[1-rank], met: &met}
		r.play()
		if t.Failed() {
			t.Fatalf("round %d of %s=%d", n, seedVar, seed)
		}
	}
	t.Logf("%d rounds in %.1f s: %v", n, time.Since(began).Seconds(), &met)
	for _, v := range toKill {
		(<-v).join(t)
	}
}

// A tally counts what the kills met.
type tally struct {
	refused, made, flows int
	bytes                int64
}

func (m *tally) String() string {
	return fmt.Sprintf("%d dials failed, %d connections were made, %d calls were cut, %d bytes had arrived, all of them right", m.refused, m.made, m.flows, m.bytes)
}

type round struct {
	t            *testing.T
	rng          *rand.Rand
	killed, peer *process
	met          *tally
}

// play connects the two, has all kinds of calls under way, and kills one.
func (r *round) play() {
	dialing := r.rng.IntN(2) == 0 // the one that is killed dials
	listener, dialer := r.peer, r.killed
	if !dialing {
		listener, dialer = r.killed, r.peer
	}
	at := listener.listen(withoutKeepAlive)
	if r.rng.IntN(4) == 0 {
		r.connecting(dialer, listener, at)
		return
	}
	var calls []*moving
	var ends []*end
	for _, kind := range []string{"both ways", "one way", "waits"} {
		near, far := connectTo(dialer, listener, at, withoutKeepAlive)
		here, there := far, near
		if !dialing {
			here, there = near, far
		}
		ends = append(ends, here)
		seed := r.rng.Uint64N(1 << 16)
		if kind == "both ways" {
			in, out := pour(there, here, seed, 0), pour(here, there, seed+1, 0)
			calls = append(calls, in.in.as(kind), out.out.as(kind))
		} else if kind == "waits" {
			calls = append(calls, here.begin(Flow{}).as(kind), here.begin(Flow{Send: true}).as("waits for credit"))
		} else if r.rng.IntN(2) == 0 {
			calls = append(calls, pour(there, here, seed, 0).in.as(kind))
		} else {
			calls = append(calls, pour(here, there, seed, 0).out.as(kind))
		}
	}
	r.met.made += len(ends)
	since := r.kill(300 * time.Millisecond)
	for _, m := range calls {
		m.quiet = true
		end := m.cut(since, atOnce, "ECONNRESET")
		r.met.flows++
		if m.what == "Read" {
			r.met.bytes += end.N
		}
	}
	for _, e := range ends {
		e.close()
	}
	r.killed.end()
}

// connecting kills one process while the two connect. The peer's dial ends, and if
// there is a connection, that does.
func (r *round) connecting(dialer, listener *process, at string) {
	made := make(chan Made, 1)
	go func() {
		// The killed process does not answer any more.
		m, _ := tryCall[Made](dialer.client, "Worker.Dial", Dial{Addr: at, Timeout: prompt, Settings: withoutKeepAlive}, 2*prompt)
		made <- m
	}()
	since := r.kill(60 * time.Millisecond)
	if dialer == r.peer {
		m := <-made
		took := time.Since(since.began)
		if late := since.late(took, atOnce); late > 0 {
			r.t.Errorf("host %d: Dial ended %.2f s too late: %v", dialer.h.rank, late.Seconds(), m.Failure)
		}
		if m.Failure.Text != "" {
			r.met.refused++
			if !m.Failure.is("ECONNREFUSED") && !m.Failure.is("ECONNRESET") {
				r.t.Errorf("host %d: Dial: %+v", dialer.h.rank, m.Failure)
			}
		} else {
			r.cutAtOnce(&end{dialer, m.Conn}, since)
		}
	} else {
		// There may be a connection that had come to stand.
		if m := listener.accept(100 * time.Millisecond); m.Failure.Text == "" {
			r.cutAtOnce(&end{listener, m.Conn}, since)
		} else {
			r.met.refused++
			require.True(r.t, m.Failure.is("deadline"), "host %d: Accept: %+v", listener.h.rank, m.Failure)
		}
	}
	r.killed.end()
}

// cutAtOnce sees a connection end whose other end was killed as soon as it stood.
func (r *round) cutAtOnce(e *end, since *stopwatch) {
	r.met.made++
	r.met.flows++
	m := e.begin(Flow{}).as("waits")
	m.quiet = true
	m.cut(since, atOnce, "ECONNRESET")
	e.close()
}

// kill kills a process at a random moment.
func (r *round) kill(within time.Duration) *stopwatch {
	time.Sleep(time.Duration(r.rng.Int64N(int64(within))))
	since := r.peer.h.w.stopwatch(r.t)
	r.killed.signal(syscall.SIGKILL)
	return since
}
