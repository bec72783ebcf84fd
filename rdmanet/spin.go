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
)

// A spinBudget decides whether to poll before parking: yes, until a poll finds
// nothing; then again after a short park, or if it keeps finding nothing, after
// ever more of them. The zero value begins with a park.
type spinBudget struct {
	on     bool
	misses uint8
	skip   uint8 // short parks to let pass before polling again
}

func newSpinBudget() spinBudget { return spinBudget{on: true} }

// hit: polling met what was waited for.
func (b *spinBudget) hit() { b.misses = 0 }

// miss: the time to poll was up.
func (b *spinBudget) miss() {
	b.on = false
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
func (w *waiter) spin(c *Conn, d direction) bool {
	limit := time.Duration(c.busyPoll.Load())
	if limit < 0 || limit == 0 && !w.budget.on {
		return w.try()
	}
	if limit == 0 {
		limit = maxSpin
	}
	defer spinning.Add(-1)
	if n := procs.Load(); spinning.Add(1) > n || n == 1 {
		return w.try()
	}
	began := time.Now()
	for {
		for range pollsPerLook {
			if w.try() {
				w.budget.hit()
				return true
			}
		}
		if c.expired(d) || time.Since(began) > limit {
			w.budget.miss()
			return false
		}
		runtime.Gosched()
	}
}
