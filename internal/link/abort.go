package link

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// sentTime bounds how long a lane that has failed waits for what it has posted.
const sentTime = time.Second

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

// awaitSent waits until the peer's device has ABORT and, where this end's has refused a request, what it took before:
// a Write has reported that. What is posted is lost when the lane is disconnected.
func (e *laneEnd) awaitSent() {
	e.mu.Lock()
	last := e.abortPosted
	if e.sq.refused != nil {
		last = e.sq.signaled
	}
	sent := e.sq.completed >= last
	e.mu.Unlock()
	for end := time.Now().Add(sentTime); !sent && time.Now().Before(end); time.Sleep(time.Millisecond) {
		e.mu.Lock()
		_, err := e.sq.reap()
		sent = e.sq.completed >= last || err != nil
		e.mu.Unlock()
	}
}

// accused is why a lane ends whose peer says that this end broke a rule.
func accused(rule error) error {
	return fmt.Errorf("%w: %w", errAccused, rule)
}
