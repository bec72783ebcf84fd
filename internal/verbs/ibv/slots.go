//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import "time"

// A goroutine that waits inside a call of a library holds an OS thread, and Go ends the
// process at ten thousand of them. So calls that may wait are made in a slot (threads.go has how
// many there are), and whoever has none waits as a goroutine does.
const (
	// hostSlots is how many of connectSlots are for one destination: one that is silent leaves some
	// to others.
	hostSlots = 6
	// mostUnanswered is how many requests to one listener on iWARP are under way until it
	// answers. siw waits ten seconds for an answer, so a crowd that asked all at once would be
	// served by a listener whose answers come too late, again and again.
	mostUnanswered = 8
	// askPatience is for how long a request waits for its turn among these.
	askPatience = 10 * time.Second
)

// slots are for so many calls at a time, in the order in which they came. A nil slots
// has no bound.
type slots chan struct{}

func newSlots(n int) slots { return make(slots, n) }

// take waits for a slot.
func (s slots) take() {
	if s != nil {
		s <- struct{}{}
	}
}

// takeNow takes a slot if one is free, and reports whether it did.
func (s slots) takeNow() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return s == nil
	}
}

// takeUnless waits for a slot and reports whether it got one before done was closed.
func (s slots) takeUnless(done <-chan struct{}) bool {
	select {
	case <-done: // also where both are ready
		return false
	default:
	}
	if s == nil {
		return true
	}
	select {
	case s <- struct{}{}:
		return true
	case <-done:
		return false
	}
}

// give ends what take began.
func (s slots) give() {
	if s != nil {
		<-s
	}
}
