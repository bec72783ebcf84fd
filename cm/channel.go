package cm

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// An EventChannel tells what became of the IDs made on it (rdma_event_channel). It
// either queues events for GetEvent or hands them to a function.
//
// A queue needs no limit of its own because its IDs cannot fill it: every call of
// an ID is answered by at most one event, a listening ID has at most as many
// requests unanswered as its backlog says, and an event that comes unasked
// (AddrChange, DeviceRemoval, Disconnected, TimewaitExit, the multicast ones) is
// queued once for each ID, however often it comes.
type EventChannel struct {
	handler func(*Event)           // nil: events are queued
	drivers func() []driver.Driver // replaced by tests

	mu     sync.Mutex
	queue  []queued
	closed bool
	ready  chan struct{} // holds a token while the queue is not empty; nil if there is none
	done   chan struct{} // closed by Close; likewise
}

// queued is an event with the ID it is queued for, which for a ConnectRequest is
// the listening one.
type queued struct {
	owner *ID
	ev    *Event
}

// NewEventChannel makes a channel that queues events for GetEvent.
func NewEventChannel() *EventChannel {
	return &EventChannel{
		drivers: driver.Drivers,
		ready:   make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
}

// NewHandlerChannel makes a channel that calls handler for every event: in order
// and one at a time for each ID, concurrently for different ones. What happens to
// the new ID of a ConnectRequest is told after handler has returned from the
// request.
//
// handler runs on the driver's goroutine, or inside the call of an ID that brings the
// event about, and must not block; it may call any method of an ID but those that wait
// for events. A lock that it takes must not be held around such a call.
func NewHandlerChannel(handler func(*Event)) *EventChannel {
	return &EventChannel{handler: handler, drivers: driver.Drivers}
}

// CreateID makes an ID whose events come through the channel (rdma_create_id).
// The caller must Close it.
func (ec *EventChannel) CreateID(opts Options) (*ID, error) {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	if ec.closed {
		return nil, errChannelClosed
	}
	return &ID{opts: opts, drivers: ec.drivers, ec: ec}, nil
}

// GetEvent returns the next event, waiting for it until ctx ends
// (rdma_get_cm_event). After Close it fails with verbs.ErrClosed. On a channel with a
// handler it fails with verbs.ErrInvalid.
func (ec *EventChannel) GetEvent(ctx context.Context) (*Event, error) {
	if ec.handler != nil {
		return nil, errHasHandler
	}
	for {
		if ev, err := ec.next(); ev != nil || err != nil {
			return ev, err
		}
		select {
		case <-ec.ready:
		case <-ec.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// next takes the first event off the queue, if there is one.
func (ec *EventChannel) next() (*Event, error) {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	if ec.closed {
		return nil, errChannelClosed
	}
	if len(ec.queue) == 0 {
		return nil, nil
	}
	ev := ec.queue[0].ev
	ec.queue = slices.Delete(ec.queue, 0, 1)
	ec.signal()
	return ev, nil
}

// signal keeps the promise of ready; ec.mu is held.
func (ec *EventChannel) signal() {
	if len(ec.queue) == 0 {
		return
	}
	select {
	case ec.ready <- struct{}{}:
	default:
	}
}

// push queues ev; false means that the channel is closed and did not take it.
func (ec *EventChannel) push(owner *ID, ev *Event) bool {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	if ec.closed {
		return false
	}
	if unasked(ev.Type) {
		for _, q := range ec.queue {
			if q.owner == owner && q.ev.Type == ev.Type {
				return true
			}
		}
	}
	ec.queue = append(ec.queue, queued{owner, ev})
	ec.signal()
	return true
}

// take removes what is queued for owner and returns it in order.
func (ec *EventChannel) take(owner *ID) []*Event {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	var taken []*Event
	ec.queue = slices.DeleteFunc(ec.queue, func(q queued) bool {
		if q.owner == owner {
			taken = append(taken, q.ev)
		}
		return q.owner == owner
	})
	return taken
}

// Close closes the channel (rdma_destroy_event_channel). GetEvent fails from then
// on and later events are dropped, as are those in the queue; requests that nobody
// has taken are closed with them. The IDs themselves remain their owners' to close.
func (ec *EventChannel) Close() error {
	var errs []error
	for _, ev := range ec.drain() {
		errs = append(errs, discard(ev))
	}
	return errors.Join(errs...)
}

// drain closes the channel and returns what is queued.
func (ec *EventChannel) drain() []*Event {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	if ec.closed {
		return nil
	}
	ec.closed = true
	if ec.done != nil {
		close(ec.done)
	}
	var events []*Event
	for _, q := range ec.queue {
		events = append(events, q.ev)
	}
	ec.queue = nil
	return events
}

// isClosed reports whether nobody listens any more.
func (ec *EventChannel) isClosed() bool {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	return ec.closed
}

// discard drops an event that nobody will see, with the ID it may have brought.
func discard(ev *Event) error {
	if ev.Type == ConnectRequest {
		return ev.ID.Close()
	}
	return nil
}

func unasked(t EventType) bool {
	switch t {
	case AddrChange, DeviceRemoval, Disconnected, TimewaitExit, MulticastJoin, MulticastError:
		return true
	}
	return false
}
