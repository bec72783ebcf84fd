//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"reflect"
	"runtime"
	"sync"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// An eventQueue gives the events of one id to its sink, in order and one at a
// time, on whatever goroutine brings them: the one that reads the event channel,
// or a timer's.
type eventQueue struct {
	mu      sync.Mutex
	idle    sync.Cond // on mu: running became false
	sink    verbs.CMSink
	queue   []verbs.CMEvent
	running bool // some goroutine delivers
	closed  bool
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

// push adds an event, which deliver hands over: they are apart so that an event
// can be pushed under a lock that the sink may need. false says that the queue is closed.
func (q *eventQueue) push(ev verbs.CMEvent) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.queue = append(q.queue, ev)
	return true
}

// deliver hands over what is queued, unless another goroutine is at it.
func (q *eventQueue) deliver() {
	q.mu.Lock()
	if q.running {
		q.mu.Unlock()
		return
	}
	q.running = true
	for len(q.queue) > 0 && !q.closed {
		ev := q.queue[0]
		q.queue[0] = verbs.CMEvent{}
		q.queue = q.queue[1:]
		sink := q.sink
		q.mu.Unlock()
		callSink(sink, ev)
		q.mu.Lock()
	}
	q.running = false
	q.idle.Broadcast()
	q.mu.Unlock()
}

// close drops what is queued, returns it, and waits for a running sink, unless
// the caller is inside a sink itself: of this id it would wait for ever, of
// another the two could wait for each other.
func (q *eventQueue) close() []verbs.CMEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	dropped := q.queue
	q.queue = nil
	if q.running && !insideSink() {
		for q.running {
			q.idle.Wait()
		}
	}
	return dropped
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
