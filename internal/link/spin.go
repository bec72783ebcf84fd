package link

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

const (
	// maxSpin is how long a call polls before it sleeps: longer than a wake-up takes.
	maxSpin = 50 * time.Microsecond
	// bytesPerSpin is what a peer copies in maxSpin. A call that waits for the answer to many bytes
	// polls for as much longer as the peer takes to read them, or mostAhead of them.
	bytesPerSpin = 512 << 10
	mostAhead    = 3 * bytesPerSpin
	// pollsPerLook is how often it polls between two looks at the clock, and lets others run.
	pollsPerLook = 32
	// pollsUncounted is how often it polls before it counts as one that spins. In a conversation that is
	// enough as a rule, and to count takes the cache line of spinning from all other processors.
	pollsUncounted = 40
	// pollsAnswered is how often it polls before it asks whether the peer had to be woken. One that is awake
	// has mostly answered by then.
	pollsAnswered = 6
	// maxTrip is the longest sleep that may be taken for the round trip of two sleepers; after
	// a longer one the peer is taken to be slow or idle.
	maxTrip = 4 * maxSpin
	// maxMisses bounds for how many such sleeps nobody polls, 2^maxMisses/2.
	maxMisses = 7
	// recentSpins is how many calls of a lane may spin after one until its experience is old.
	recentSpins = 16
	// hitsPerMiss is how many hits of calls without experience make up for a miss of one.
	hitsPerMiss = 2
)

// spinBudget decides whether to poll before sleeping: until that finds nothing; then again
// after a short sleep or, if it keeps finding nothing, after ever more of them.
type spinBudget struct {
	off     bool
	lasting bool // it is of many calls, one after the other: their experience does not grow old
	misses  uint8
	skip    uint8  // short sleeps to let pass
	last    uint32 // laneBudget.count when its call spun last; 0: it has not
}

func (b *spinBudget) hit() { b.misses = 0 }

func (b *spinBudget) miss() {
	b.off = true
	b.misses = min(b.misses+1, maxMisses)
	b.skip = 1<<(b.misses-1) - 1
}

func (b *spinBudget) note(hit bool) {
	if hit {
		b.hit()
	} else {
		b.miss()
	}
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

// laneBudget is that of all calls of a lane without recent experience of their own. Where many streams
// wait in turn each of them would spin once before it learns that this takes the processors from those
// who are to answer. Who has the poll role uses it.
type laneBudget struct {
	spinBudget
	hits  uint8  // since they last made up for a miss
	count uint32 // of calls that have spun
}

// of returns the budget that decides for a call with budget b.
func (l *laneBudget) of(b *spinBudget) *spinBudget {
	if b.lasting || b.last != 0 && l.count-b.last < recentSpins {
		return b
	}
	return &l.spinBudget
}

// note records what a call with budget b has found, for which the budget by has decided.
func (l *laneBudget) note(b, by *spinBudget, hit bool) {
	if by == &l.spinBudget {
		*b = spinBudget{}
		l.noteUnknown(hit)
	}
	b.note(hit)
	if l.count++; l.count == 0 {
		l.count = 1
	}
	b.last = l.count
}

// noteUnknown records what a call without recent experience has found. A single call that finds
// something is in a conversation, and its misses count no more. Of many calls some always find
// something: they pay when most do.
func (l *laneBudget) noteUnknown(hit bool) {
	if !hit {
		l.miss()
	} else if l.hits++; l.hits == hitsPerMiss {
		l.hits = 0
		l.misses = max(l.misses, 1) - 1
	}
}

// spinning counts the goroutines of the process that spin just now, and have polled more than
// pollsUncounted times. More of them than processors would take the time from those they wait for.
var spinning, procs atomic.Int32

func init() { lookAtProcs() }

func lookAtProcs() { procs.Store(int32(runtime.GOMAXPROCS(0))) }

// pollFor polls, and reports whether there is something for w. If so it returns with mu held.
func (e *laneEnd) pollFor(w *waiter) bool {
	some, _ := e.pollLocked()
	if !some {
		if !w.woken() {
			return false
		}
		e.mu.Lock() // somebody else has found it
		return true
	}
	if w.woken() {
		return true
	}
	e.mu.Unlock()
	e.startWorker()
	return false
}

// spin polls before w sleeps, and reports whether there is something for it. If so it returns with mu
// held.
func (e *laneEnd) spin(w *waiter) bool {
	e.holdOff(w)
	if e.pollFor(w) {
		return true
	}
	busyPoll, budget, n := time.Duration(w.busyPoll.Load()), e.polling.pays.of(&w.pays), procs.Load()
	poll := func() bool {
		found := e.pollFor(w)
		if !found {
			cacheline.Pause() // the peer may share this core
		}
		return found
	}
	limit, between := howToPoll(busyPoll, budget.off, e.p.sameHost, n, w.ahead)
	if limit > 0 {
		if found, spun := e.spinFor(w, limit, n, poll); spun {
			if busyPoll == 0 {
				e.polling.pays.note(&w.pays, budget, found)
			} else { // which says nothing of what pays for others
				w.pays.note(found)
			}
			return found
		}
	}
	if !between || !e.polling.yields.try() {
		return false
	}
	found := pollBetween(runtime.Gosched, poll, func() bool { return e.over(w) })
	e.polling.yields.note(found)
	return found
}

// hasWoken reports whether messages have woken the peer since it was last asked, where the driver counts
// that. Who has the poll role asks.
func (e *laneEnd) hasWoken() bool {
	c := e.sq.counter
	if c == nil {
		return false
	}
	before := e.polling.wokenPeer
	e.polling.wokenPeer = c.WakeupsSent()
	return e.polling.wokenPeer != before
}

// howToPoll returns for how long a call spins, and whether it polls behind other goroutines if it does
// not, which pays where the peer would have to wake this process. With one processor it does neither:
// the scheduler looks for what has come for sleepers when it finds no goroutine to run. ahead is what the
// peer has to read first.
func howToPoll(busyPoll time.Duration, off, sameHost bool, procs int32, ahead uint64) (limit time.Duration, between bool) {
	switch {
	case busyPoll < 0 || procs == 1:
		return 0, false
	case busyPoll > 0:
		return busyPoll, sameHost
	case off:
		return 0, sameHost
	}
	reading := time.Duration(min(ahead, mostAhead)) * maxSpin / bytesPerSpin
	return maxSpin + reading, sameHost
}

// over reports whether w waits no more, whatever comes.
func (e *laneEnd) over(w *waiter) bool { return w.expired() || e.failed.Load() }

// spinForOthers is for w, which sleeps in the channel and has just taken in what came for others: it
// polls on before it arms the queue again, and reports whether something has come. Streams that are used
// in turn would otherwise have this end woken for each message, while a call on one of them that is
// idle has the poll role.
func (e *laneEnd) spinForOthers(w *waiter) bool {
	n := procs.Load()
	busyPoll := min(time.Duration(w.busyPoll.Load()), 0) // which may forbid it; how long w itself is to spin is another matter
	limit, _ := howToPoll(busyPoll, e.polling.othersPay.off, e.p.sameHost, n, 0)
	if limit == 0 {
		return false
	}
	runtime.Gosched() // to those that it has woken
	some := false
	_, spun := e.spinFor(w, limit, n, func() bool {
		some, _ = e.pollAny()
		return some || w.woken()
	})
	if spun {
		e.polling.othersPay.note(some)
	}
	return some
}

// spinFor calls poll for so long, until it reports true: that is found. spun is false if as many others
// spin as there are processors.
func (e *laneEnd) spinFor(w *waiter, limit time.Duration, procs int32, poll func() bool) (found, spun bool) {
	began := time.Now()
	expired := func() bool { return time.Since(began) > limit || e.over(w) }
	for i := range pollsUncounted {
		if poll() {
			return true, true
		}
		if i+1 == pollsAnswered && e.hasWoken() {
			runtime.Gosched() // to whom it has woken, if that is a goroutine of this process
		}
	}
	if expired() {
		return false, true
	}
	lookAtProcs() // for the next call: one that always finds something while it spins never sleeps
	defer spinning.Add(-1)
	if spinning.Add(1) > procs {
		return false, false
	}
	for {
		runtime.Gosched()
		for range pollsPerLook {
			if poll() {
				return true, true
			}
		}
		if expired() {
			return false, true
		}
	}
}
