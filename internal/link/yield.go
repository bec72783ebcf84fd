package link

import "time"

const (
	// busyYield is what it takes at least to let others run, if there are some; mostly it takes less
	// if there are none. maxYields is how often a call does so that does not spin.
	busyYield = 2 * time.Microsecond
	maxYields = 20
	// maxUseless bounds for how many calls nobody does so, 2^maxUseless/2.
	maxUseless = 6
)

// yieldBudget decides whether a call that does not spin polls behind other goroutines. Where there are
// none, to let them run wakes a thread for nothing, which takes the processor from the peer, and so long
// that it looks as if there were some. So after calls that found nothing by it, for whatever reason, some do
// without, ever more of them. It is of all calls of a lane; who has the poll role uses it.
type yieldBudget struct {
	useless uint8 // calls that have found nothing, one after the other
	skip    uint8 // calls that do without
}

// try reports whether the next call lets others run.
func (b *yieldBudget) try() bool {
	if b.skip > 0 {
		b.skip--
		return false
	}
	return true
}

// note records whether a call that did so has found something.
func (b *yieldBudget) note(found bool) {
	if found {
		b.useless = 0
		return
	}
	b.useless = min(b.useless+1, maxUseless)
	b.skip = 1<<(b.useless-1) - 1
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
