package event

import (
	"reflect"
	"runtime"
	"slices"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// A Queue gives the events of one id to its sink, in order and one at a time. No
// goroutine belongs to it: whoever brings an event delivers it himself, from a goroutine
// of the driver or at the end of a call of the application. Init comes first.
type Queue struct {
	mu      sync.Mutex
	idle    sync.Cond // on mu: running became false
	sink    driver.CMSink
	queue   []queued
	running bool // some goroutine delivers, or the queue is held
	held    bool
	closed  bool
}

// queued is an event and what follows its delivery.
type queued struct {
	ev    driver.CMEvent
	after func(delivered bool)
}

// Init makes the queue ready for use.
func (q *Queue) Init(sink driver.CMSink) {
	q.idle.L = &q.mu
	q.sink = sink
}

// SetSink changes where later events go.
func (q *Queue) SetSink(sink driver.CMSink) {
	q.mu.Lock()
	q.sink = sink
	q.mu.Unlock()
}

// Sink is where events go now.
func (q *Queue) Sink() driver.CMSink {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sink
}

// Push adds an event, and reports whether it could: the queue may be closed. Deliver must follow. They are apart
// so that an event can be pushed under a lock that the sink may need.
func (q *Queue) Push(ev driver.CMEvent) bool { return q.PushThen(ev, nil) }

// PushThen is Push with what runs, if it is not nil, on the delivering goroutine when
// the sink has returned, or on another when the event was dropped.
func (q *Queue) PushThen(ev driver.CMEvent, after func(delivered bool)) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		if after != nil {
			after(false)
		}
		return false
	}
	q.queue = append(q.queue, queued{ev, after})
	q.mu.Unlock()
	return true
}

// Deliver delivers what is queued on the caller's goroutine, unless another is at it.
func (q *Queue) Deliver() {
	if q.claim() {
		q.Release()
	}
}

// Hold keeps events back until Release is called. The queue must be idle.
func (q *Queue) Hold() {
	q.mu.Lock()
	q.running, q.held = true, true
	q.mu.Unlock()
}

func (q *Queue) claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running || len(q.queue) == 0 {
		return false
	}
	q.running = true
	return true
}

// Release delivers until nothing is queued; its caller has held the queue.
func (q *Queue) Release() {
	q.mu.Lock()
	q.held = false
	for len(q.queue) > 0 && !q.closed {
		e := q.queue[0]
		q.queue = slices.Delete(q.queue, 0, 1)
		sink := q.sink
		q.mu.Unlock()
		callSink(sink, e.ev)
		if e.after != nil {
			e.after(true)
		}
		q.mu.Lock()
	}
	q.running = false
	q.idle.Broadcast()
	q.mu.Unlock()
}

// Close drops what is queued, returns it, and waits for a running sink, unless the
// caller is inside a sink itself: of this id it would wait for ever, of another the
// two could wait for each other. A queue that is held has no running sink.
func (q *Queue) Close() []driver.CMEvent {
	q.mu.Lock()
	q.closed = true
	dropped := q.queue
	q.queue = nil
	if q.running && !q.held && !insideSink() {
		for q.running {
			q.idle.Wait()
		}
	}
	q.mu.Unlock()
	events := make([]driver.CMEvent, len(dropped))
	for i, e := range dropped {
		events[i] = e.ev
		if e.after != nil {
			e.after(false)
		}
	}
	return events
}

// callSink is the frame by which insideSink knows a goroutine that delivers.
//
//go:noinline
func callSink(sink driver.CMSink, ev driver.CMEvent) {
	sink(ev)
}

var callSinkEntry = reflect.ValueOf(callSink).Pointer()

// insideSink reports whether the calling goroutine is in a sink. It looks at the
// stack, which is slow, but only a Close during a delivery asks.
func insideSink() bool {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(2, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 2*len(pcs))
		n = runtime.Callers(2, pcs)
	}
	frames := runtime.CallersFrames(pcs[:n])
	for {
		frame, more := frames.Next()
		if frame.Entry == callSinkEntry {
			return true
		}
		if !more {
			return false
		}
	}
}
