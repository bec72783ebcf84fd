//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import "time"

// A goroutine that waits inside a call of a library holds an OS thread, and Go ends the
// process at ten thousand of them. So calls that may wait are made in a slot, and
// whoever has none waits as a goroutine does. Calls that complete a connection have slots
// of their own, since its peer waits for them and may lose patience behind a crowd that
// only begins; and so have those that end something, for a device may take seconds over
// them. Nobody takes two slots, or waits for anything else while he has one, but for those of
// connects: first a listener's, then a host's, and last one of all.
const (
	deviceSlots      = 12 // of a device: making and changing objects
	deviceReadySlots = 6  // of a device: taking the QPs of connections to RTS
	deviceEndSlots   = 6  // of a device: destroying objects
	cmSlots          = 6  // of the connection manager
	cmReadySlots     = 6  // answering and confirming
	cmEndSlots       = 6  // destroying ids
	routeSlots       = 4  // rdma_resolve_route, which may wait for a daemon
	connectSlots     = 24 // rdma_connect on iWARP, which may wait for TCP
	hostSlots        = 6  // of these for one destination: one that is silent leaves some to others

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

// takeNow takes a slot if one is free, and says whether.
func (s slots) takeNow() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return s == nil
	}
}

// takeUnless waits for a slot and says whether it got one before done was closed.
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
