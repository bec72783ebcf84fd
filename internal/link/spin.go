package link

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// maxSpin is how long a call polls before it sleeps: longer than a wake-up takes.
	maxSpin = 50 * time.Microsecond
	// pollsPerLook is how often it polls between two looks at the clock, and lets others run.
	pollsPerLook = 32
	// busyYield is how long it takes at least to let others run where there are some, and maxYields
	// how often a call does so that is not to spin.
	busyYield = 2 * time.Microsecond
	maxYields = 20
	// maxTrip is the longest sleep that may be taken for the round trip of two sleepers; after
	// a longer one the peer is taken to be slow or idle.
	maxTrip = 4 * maxSpin
	// maxMisses bounds for how many such sleeps nobody polls, 2^maxMisses/2.
	maxMisses = 7
	// recentSpins is how many calls may poll a lane after one until its experience is old.
	recentSpins = 16
	// hitsPerMiss is how many hits of calls without experience make up for a miss of one.
	hitsPerMiss = 2
)

// spinBudget decides whether to poll before sleeping: until that finds nothing; then again
// after a short sleep or, if it keeps finding nothing, after ever more of them.
type spinBudget struct {
	off    bool
	misses uint8
	skip   uint8  // short sleeps to let pass
	last   uint32 // of a call: laneSpins.count when it polled last; 0: it has not
}

func (b *spinBudget) hit() { b.misses = 0 }

func (b *spinBudget) miss() {
	b.off = true
	b.misses = min(b.misses+1, maxMisses)
	b.skip = 1<<(b.misses-1) - 1
}

// slept: a sleep took so long.
func (b *spinBudget) slept(d time.Duration) {
	switch {
	case d > maxTrip:
	case b.skip > 0:
		b.skip--
	default:
		b.off = false
	}
}

// laneSpins is what all calls of a lane have found by polling. Where many streams wait in turn, each
// of them would poll once before it learns that this takes the processors from those who are to
// answer. So a call without recent experience goes by that of the others. Who has the poll role
// uses it.
type laneSpins struct {
	budget spinBudget // of calls without recent experience
	hits   uint8      // since the last hitsPerMiss of them
	count  uint32     // of calls that have polled
}

// of returns the budget that decides for a call with budget b.
func (l *laneSpins) of(b *spinBudget) *spinBudget {
	if b.last != 0 && l.count-b.last < recentSpins {
		return b
	}
	return &l.budget
}

// note records what a call with budget b has found, by a decision of the budget by.
func (l *laneSpins) note(b, by *spinBudget, hit bool) {
	if by == &l.budget {
		*b = spinBudget{}
		l.noteUnknown(hit)
	}
	if hit {
		b.hit()
	} else {
		b.miss()
	}
	if l.count++; l.count == 0 {
		l.count = 1
	}
	b.last = l.count
}

// noteUnknown records what a call without recent experience has found. One hit makes up for all
// misses of a single call, which answers somebody; those of many calls are added up.
func (l *laneSpins) noteUnknown(hit bool) {
	if !hit {
		l.budget.miss()
	} else if l.hits++; l.hits == hitsPerMiss {
		l.hits = 0
		l.budget.misses = max(l.budget.misses, 1) - 1
	}
}

// spinning counts the goroutines of the process that poll just now. More of them than
// processors would take the time from those they wait for.
var spinning, procs atomic.Int32

func init() { lookAtProcs() }

func lookAtProcs() { procs.Store(int32(runtime.GOMAXPROCS(0))) }

// pollFor polls, and reports whether there is something for w. If so it returns with mu held.
func (e *laneEnd) pollFor(w *waiter) bool {
	some, _ := e.pollLocked()
	if !some {
		if !w.woken.Load() {
			return false
		}
		e.mu.Lock() // somebody else has found it
		return true
	}
	if w.woken.Load() {
		return true
	}
	e.mu.Unlock()
	e.startWorker()
	return false
}

// spin polls for as long as that pays, and reports whether there is something for w. If so it
// returns with mu held.
func (e *laneEnd) spin(w *waiter) bool {
	if e.pollFor(w) {
		return true
	}
	limit := time.Duration(w.busyPoll.Load())
	budget := e.spins.of(&w.pays)
	if limit == 0 && !budget.off {
		limit = maxSpin
	}
	n := procs.Load()
	if limit < 0 || n == 1 {
		return false
	}
	if limit == 0 {
		return pollBetween(runtime.Gosched, func() bool { return e.pollFor(w) }, func() bool { return w.expired() || e.failed.Load() })
	}
	defer spinning.Add(-1)
	if spinning.Add(1) > n {
		return false
	}
	for began := time.Now(); ; runtime.Gosched() {
		for range pollsPerLook {
			if e.pollFor(w) {
				e.spins.note(&w.pays, budget, true)
				return true
			}
		}
		if time.Since(began) > limit || w.expired() || e.failed.Load() {
			e.spins.note(&w.pays, budget, false)
			return false
		}
	}
}

// pollBetween lets other goroutines run, by yield, and polls behind them, as long as they have something
// to do: what has come meanwhile need not wake this process, which is awake. It reports whether poll has
// found what it is for; over ends it.
func pollBetween(yield func(), poll, over func() bool) bool {
	for range maxYields {
		began := time.Now()
		yield()
		idle := time.Since(began) < busyYield // of poll this says nothing, which may be slow
		if poll() {
			return true
		}
		if idle || over() {
			return false
		}
	}
	return false
}
