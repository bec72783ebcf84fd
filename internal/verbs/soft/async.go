//go:build linux && (amd64 || arm64)

package soft

import (
	"context"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// maxAsync bounds the events that nobody has asked for yet; past it the oldest is
// dropped.
const maxAsync = 1024

// asyncQueue holds the asynchronous events of a context.
type asyncQueue struct {
	mu     sync.Mutex
	events []verbs.AsyncEvent
	more   chan struct{} // closed and replaced when an event arrives; nil if nobody waits
	closed bool
}

func (a *asyncQueue) raise(ev verbs.AsyncEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	if len(a.events) == maxAsync {
		a.events = append(a.events[:0], a.events[1:]...)
	}
	a.events = append(a.events, ev)
	a.wake()
}

func (a *asyncQueue) wake() {
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
}

func (a *asyncQueue) next(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			return verbs.AsyncEvent{}, verbs.ErrClosed
		}
		if len(a.events) > 0 {
			ev := a.events[0]
			a.events[0] = verbs.AsyncEvent{}
			a.events = a.events[1:]
			a.mu.Unlock()
			return ev, nil
		}
		if a.more == nil {
			a.more = make(chan struct{})
		}
		more := a.more
		a.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return verbs.AsyncEvent{}, context.Cause(ctx)
		}
	}
}

// forget drops the events of an object that was destroyed.
func (a *asyncQueue) forget(about func(verbs.AsyncEvent) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keep := a.events[:0]
	for _, ev := range a.events {
		if !about(ev) {
			keep = append(keep, ev)
		}
	}
	clear(a.events[len(keep):])
	a.events = keep
}

func (a *asyncQueue) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.events = nil
	a.wake()
}
