package event

import (
	"context"
	"sync"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// maxAsync bounds the events that nobody has asked for yet; past it the oldest is
// dropped.
const maxAsync = 1024

// Async holds asynchronous events until somebody asks for them. Its zero value is ready for use.
type Async struct {
	mu     sync.Mutex
	events []verbs.AsyncEvent
	more   chan struct{} // closed and replaced when an event arrives; nil if nobody waits
	closed bool
}

// Raise adds an event.
func (a *Async) Raise(ev verbs.AsyncEvent) {
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

func (a *Async) wake() {
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
}

// Next waits for an event until ctx ends or the queue is closed.
func (a *Async) Next(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		ev, more, err := a.take()
		if err != nil || more == nil {
			return ev, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return verbs.AsyncEvent{}, context.Cause(ctx)
		}
	}
}

// take returns the oldest event, or else what to wait for.
func (a *Async) take() (verbs.AsyncEvent, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return verbs.AsyncEvent{}, nil, verbs.ErrClosed
	}
	if len(a.events) > 0 {
		ev := a.events[0]
		a.events[0] = verbs.AsyncEvent{}
		a.events = a.events[1:]
		return ev, nil, nil
	}
	if a.more == nil {
		a.more = make(chan struct{})
	}
	return verbs.AsyncEvent{}, a.more, nil
}

// Forget drops the events of an object that is destroyed.
func (a *Async) Forget(about func(verbs.AsyncEvent) bool) {
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

// Close drops the events; those who wait, and all who ask later, get verbs.ErrClosed.
func (a *Async) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.events = nil
	a.wake()
}
