package link

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// lastWordTime bounds how long a lane whose peer has lied waits until that was told.
const lastWordTime = time.Second

// sayLastWord tells the peer which rule about the lane it broke, if err says that it did and
// there is room to say so. mu is held, and the lane stands yet.
func (e *laneEnd) sayLastWord(err error) {
	var broken *lane.ProtocolError
	if !errors.As(err, &broken) || broken.Rule.Scope() != lane.ScopeLink || !e.room(2) {
		return
	}
	e.state.Abort(broken.Rule)
	if m, ok := e.state.Next(); ok {
		if e.say(&m, nil, true) == nil {
			e.lastWord = e.sq.posted
		}
	}
}

// awaitLastWord waits until the peer's device has what was said, as what is posted is lost when
// the lane is disconnected.
func (e *laneEnd) awaitLastWord() {
	if e.lastWord == 0 {
		return
	}
	for end := time.Now().Add(lastWordTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		e.mu.Lock()
		_, err := e.sq.reap()
		said := e.sq.completed >= e.lastWord
		e.mu.Unlock()
		if said || err != nil {
			return
		}
	}
}

// accused is why a lane ends whose peer says that this end broke a rule.
func accused(rule error) error {
	return fmt.Errorf("%w: %w", errAccused, rule)
}
