package link

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// abortTime bounds how long a lane waits until ABORT has arrived.
const abortTime = time.Second

// sendAbort tells the peer which rule about the lane it broke, if err is that and there is room for
// the record. mu is held, and the lane has not failed yet.
func (e *laneEnd) sendAbort(err error) {
	var broken *lane.ProtocolError
	if !errors.As(err, &broken) || broken.Rule.Scope() != lane.ScopeLane || !e.room(2) {
		return
	}
	e.state.Abort(broken.Rule)
	if m, ok := e.state.Next(); ok {
		if e.say(&m, nil, true) == nil {
			e.abortPosted = e.sq.posted
		}
	}
}

// awaitAbort waits until the peer's device has ABORT, since what is posted is lost when the lane is
// disconnected.
func (e *laneEnd) awaitAbort() {
	if e.abortPosted == 0 {
		return
	}
	for end := time.Now().Add(abortTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		e.mu.Lock()
		_, err := e.sq.reap()
		sent := e.sq.completed >= e.abortPosted
		e.mu.Unlock()
		if sent || err != nil {
			return
		}
	}
}

// accused is why a lane ends whose peer says that this end broke a rule.
func accused(rule error) error {
	return fmt.Errorf("%w: %w", errAccused, rule)
}
