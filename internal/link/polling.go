package link

import (
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// polling is what a lane has for the calls that wait, and of whom among them polls for all (wait.go). The lane's lock
// guards it, but for what says otherwise.
type polling struct {
	role    lane.PollRole
	calls   []*waiter // that wait, by their number less 1
	unused  []lane.Waiter
	kept    keptRole
	waits   waits // how many there are
	wakeups wakeups
	rested  chan struct{} // holds a token while nobody has the poll role

	// Who has the poll role uses what follows.
	wcs       [wcBatch]verbs.WC
	pays      laneBudget
	yields    yieldBudget
	othersPay spinBudget    // of its polling for others
	wokenPeer uint64        // how often, when hasWoken was last asked
	sleeper   *waiter       // who sleeps in the channel with it
	sleepEnd  int64         // its deadline, as a waiter has it
	armed     time.Duration // since epoch, when it went to sleep; 0: it has not
	recheck   func() bool   // of the sleeper: pollAndArm; made once
}

// firstCalls is for how many calls that wait a lane has room at first: a call that waits writes there, and
// less would lie in a cache line that another lane's calls write to, on another processor.
const firstCalls = 16

func newPolling(e *laneEnd) polling {
	return polling{
		kept:  keptRole{timeout: e.keptTimeout},
		calls: make([]*waiter, 0, firstCalls), unused: make([]lane.Waiter, 0, firstCalls),
		wakeups: make(wakeups, 0, spareWakeups),
		rested:  make(chan struct{}, 1),
		recheck: e.pollAndArm,
	}
}
