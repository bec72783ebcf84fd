//go:build linux && (amd64 || arm64)

package soft

import (
	"reflect"
	"runtime"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// An eventQueue gives the events of one id to its sink, in order and one at a
// time. No goroutine belongs to it: whoever brings an event from a goroutine of
// the driver delivers it himself, and a call of the application starts a
// goroutine for its event.
type eventQueue struct {
	mu      sync.Mutex
	idle    sync.Cond // on mu: running became false
	sink    verbs.CMSink
	queue   []queuedEvent
	running bool // some goroutine delivers
	closed  bool
}

// A queuedEvent is an event and what follows its delivery.
type queuedEvent struct {
	ev verbs.CMEvent
	// after runs on the delivering goroutine when the sink has returned, or was
	// not called because the queue was closed.
	after func(delivered bool)
}

func (q *eventQueue) init(sink verbs.CMSink) {
	q.idle.L = &q.mu
	q.sink = sink
}

// setSink changes where later events go.
func (q *eventQueue) setSink(sink verbs.CMSink) {
	q.mu.Lock()
	q.sink = sink
	q.mu.Unlock()
}

func (q *eventQueue) currentSink() verbs.CMSink {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sink
}

// push adds an event; deliver or start must follow. They are apart so that an
// event can be pushed under a lock that the sink may need.
func (q *eventQueue) push(ev verbs.CMEvent) { q.pushThen(ev, nil) }

func (q *eventQueue) pushThen(ev verbs.CMEvent, after func(delivered bool)) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		if after != nil {
			after(false)
		}
		return
	}
	q.queue = append(q.queue, queuedEvent{ev, after})
	q.mu.Unlock()
}

// start delivers what is queued on a goroutine of its own.
func (q *eventQueue) start() {
	if q.claim() {
		go q.drain()
	}
}

// deliver delivers what is queued on the caller's goroutine, which is the
// driver's, unless another goroutine is at it.
func (q *eventQueue) deliver() {
	if q.claim() {
		q.drain()
	}
}

// hold keeps events back until drain is called. The queue must be idle.
func (q *eventQueue) hold() {
	q.mu.Lock()
	q.running = true
	q.mu.Unlock()
}

func (q *eventQueue) claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running || len(q.queue) == 0 {
		return false
	}
	q.running = true
	return true
}

// drain delivers until nothing is queued; its caller has claimed or held the queue.
func (q *eventQueue) drain() {
	q.mu.Lock()
	for len(q.queue) > 0 && !q.closed {
		e := q.queue[0]
		q.queue[0] = queuedEvent{}
		q.queue = q.queue[1:]
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

// close drops what is queued and waits for a running sink, unless the caller is
// inside a sink itself: of this id it would wait for ever, of another the two
// could wait for each other.
func (q *eventQueue) close() {
	q.mu.Lock()
	q.closed = true
	dropped := q.queue
	q.queue = nil
	if q.running && !insideSink() {
		for q.running {
			q.idle.Wait()
		}
	}
	q.mu.Unlock()
	for _, e := range dropped {
		if e.after != nil {
			e.after(false)
		}
	}
}

// callSink is the frame by which insideSink knows a goroutine that delivers.
//
//go:noinline
func callSink(sink verbs.CMSink, ev verbs.CMEvent) {
	sink(ev)
}

var callSinkEntry = reflect.ValueOf(callSink).Pointer()

// insideSink says whether the calling goroutine is in a sink. It looks at the
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
