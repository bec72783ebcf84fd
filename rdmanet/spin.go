package rdmanet

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// maxSpin is how long a wait polls: longer than one wake-up takes, so that an
	// end which polls meets the answer of a peer that had to be woken for it, and
	// both come out of a conversation of sleepers.
	maxSpin = 50 * time.Microsecond
	// maxTrip is the longest park that may be taken for the round trip of two
	// sleepers; after a longer one the peer is taken to be slow or idle.
	maxTrip = 4 * maxSpin
	// pollsPerLook is how often a wait polls between two looks at the clock. The
	// scheduler is let in as often: somebody must run what we wait for.
	pollsPerLook = 32
	// maxMisses bounds for how many parks polling stays switched off, 2^maxMisses/2.
	maxMisses = 7
	// lateHit is when polling has cost more than a wake-up would have.
	lateHit = 5 * time.Microsecond
	// proven is after how many hits in a row a connection polls on its own account.
	proven = 2
)

// A spinBudget decides whether to poll before parking: yes, until a poll finds
// nothing; then again after a short park, or if it keeps finding nothing, after
// ever more of them. The zero value begins with a park.
type spinBudget struct {
	on     bool
	misses uint8
	skip   uint8 // short parks to let pass before polling again
	hits   uint8 // since the last miss, up to proven
}

func newSpinBudget() spinBudget { return spinBudget{on: true} }

// hit: polling met what was waited for, after it had taken so long. Where others would
// have polled, that may have been too long.
func (b *spinBudget) hit(polled time.Duration) {
	switch {
	case polled <= lateHit || !luck.crowded():
		if b.hits < proven {
			luck.hit()
			b.hits++
		}
		b.misses = 0
	case b.hits == proven:
		b.hits-- // once is no habit
	default:
		b.miss()
	}
}

// miss: the time to poll was up, or would have been better spent.
func (b *spinBudget) miss() {
	if luck.crowded() {
		luck.miss()
	}
	b.on, b.hits = false, 0
	b.misses = min(b.misses+1, maxMisses)
	b.skip = 1<<(b.misses-1) - 1
}

// parked: a park took so long.
func (b *spinBudget) parked(d time.Duration) {
	switch {
	case d > maxTrip:
	case b.skip > 0:
		b.skip--
	default:
		b.on = true
	}
}

// spinning counts the goroutines of the process that poll just now. More of them
// than processors would take the time from those they wait for.
var spinning atomic.Int32

// procs is GOMAXPROCS as last looked at: asking takes a lock of the scheduler's.
var procs atomic.Int32

func init() { lookAtProcs() }

func lookAtProcs() { procs.Store(int32(runtime.GOMAXPROCS(0))) }

// spin polls, for as long as SetBusyPoll says or for a while if the budget allows, and
// says whether the wait is over.
func (w *waiter) spin(s *stream, c condition) bool {
	limit := time.Duration(s.busyPoll.Load())
	if limit < 0 || limit == 0 && !w.budget.on {
		return s.poll(c)
	}
	if limit == 0 {
		limit = maxSpin
		if w.budget.hits < proven && !luck.try() {
			return s.poll(c)
		}
	}
	defer spinning.Add(-1)
	if n := procs.Load(); spinning.Add(1) > n || n == 1 {
		luck.turnAway()
		return s.poll(c)
	}
	began, polled := time.Now(), time.Duration(0)
	for {
		for range pollsPerLook {
			if s.poll(c) {
				w.budget.hit(polled)
				return true
			}
		}
		if polled = time.Since(began); polled > limit || w.expired() {
			w.budget.miss()
			return false
		}
		runtime.Gosched()
	}
}
