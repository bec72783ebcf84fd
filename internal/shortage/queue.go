// Package shortage keeps the clients of a listener waiting while there are no descriptors or
// no memory for them.
//
// It is as with those of TCP, which the kernel keeps. Each is tried again: after a pause that
// grows, and as soon as something of the process has been given back. Clients have their turn
// as they came. While somebody waits, no more are taken in where the device can leave them
// outside.
//
// Who waits may hold what another one lacks, so that none of them would ever be served. So
// after each try that failed for lack of descriptors the one that came last of those that
// hold some is sent away, and dials again by itself.
package shortage

import (
	"container/list"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstPause = 5 * time.Millisecond
	// LastPause is the longest between two tries, of a listener or of a dialer.
	LastPause = time.Second
	// logged is the time between two warnings in the log; what comes meanwhile is
	// at level debug.
	logged = time.Second
)

// ErrGivenBack is the error of a client that was sent away for what it held.
var ErrGivenBack = errors.New("no resources for the client, which is to dial again")

// A Queue has the clients of one listener that wait. Its methods may be called concurrently.
type Queue struct {
	hold   func(bool) // has the device take in no more clients
	count  atomic.Uint64
	errors chan error

	syncing sync.Mutex // held over hold; taken before mu
	isShort bool       // what sync has told last

	mu      sync.Mutex
	waiting list.List // *client, in the order they came
	pause   time.Duration
	timer   *time.Timer // until the first one's turn; nil while it tries
	freed   bool        // something was while it tried
	warned  time.Time   // when the log was told last
}

// A client is one that waits.
type client struct {
	holds bool          // it has a descriptor of this process
	elem  *list.Element // in Queue.waiting; nil when it was sent away
	turn  chan struct{} // has a token when it is to try again, and is closed when it was sent away
}

// NewQueue returns a Queue in which nobody waits. Hold has the device take in no more clients,
// or go on; it may be told again what it was told last.
func NewQueue(hold func(bool)) *Queue {
	return &Queue{hold: hold, errors: make(chan error), pause: firstPause}
}

// short is the listeners of the process that have clients waiting.
var short struct {
	some atomic.Int32 // how many
	mu   sync.Mutex
	set  map[*Queue]struct{}
}

// Count is how many times a client could not be served.
func (q *Queue) Count() uint64 { return q.count.Load() }

// Errors is where an Accept hears of a shortage that happens while it waits.
func (q *Queue) Errors() <-chan error { return q.errors }

// Freed has the listeners of the process that lack something try again.
func Freed() {
	if short.some.Load() == 0 {
		return
	}
	short.mu.Lock()
	defer short.mu.Unlock()
	for q := range short.set {
		q.retryNow()
	}
}

// sync tells the device and Freed whether anybody waits now.
func (q *Queue) sync() {
	q.syncing.Lock()
	defer q.syncing.Unlock()
	some := q.Waiting()
	if some == q.isShort {
		return
	}
	q.isShort = some
	short.mu.Lock()
	if some {
		if short.set == nil {
			short.set = make(map[*Queue]struct{})
		}
		short.set[q] = struct{}{}
	} else {
		delete(short.set, q)
	}
	short.some.Store(int32(len(short.set)))
	short.mu.Unlock()
	q.hold(some)
}

// shed has the device give up what nobody misses.
func (q *Queue) shed() {
	q.syncing.Lock()
	defer q.syncing.Unlock()
	if q.isShort {
		q.hold(true)
	}
}

// Tell counts a client that could not be served, has Accept say why, and returns whether
// the log was not warned for a while. As with accept(2), an Accept fails with what happens
// while it waits: nothing is kept for a later one, by which all may be well. As long as the
// shortage lasts it is told again at each try.
func (q *Queue) Tell(err error) (warn bool) {
	q.count.Add(1)
	select {
	case q.errors <- err:
	default:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); q.warned.IsZero() || now.Sub(q.warned) >= logged {
		q.warned, warn = now, true
	}
	return warn
}

// Waiting reports whether anybody waits: who comes now has to wait, too.
func (q *Queue) Waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len() > 0
}

// Serve has try make what a client needs, once or until it does not fail for lack of
// something, and returns its error. Lacking hears of each try that does. Before the next the
// client waits for its turn, as wait is to do: until the channel has a token, or is closed,
// which is ErrGivenBack, or the client or the listener has left, which is an error. Holds
// tells whether the client has a descriptor of this process.
func (q *Queue) Serve(holds func() bool, try func() error, lacking func(error), wait func(turn <-chan struct{}) error) error {
	if !q.Waiting() {
		err := try()
		if !Is(err) {
			return err
		}
		lacking(err)
	}
	c := q.join(holds())
	for {
		if err := wait(c.turn); err != nil {
			q.leave(c, false)
			return err
		}
		err := try()
		if !Is(err) {
			q.leave(c, err == nil)
			return err
		}
		lacking(err)
		q.failed(c, OfDescriptors(err))
	}
}

// join has a client wait that holds a descriptor or none. Its turn comes after those of all
// who wait already.
func (q *Queue) join(holds bool) *client {
	q.mu.Lock()
	c := &client{holds: holds, turn: make(chan struct{}, 1)}
	c.elem = q.waiting.PushBack(c)
	if q.waiting.Len() == 1 {
		q.schedule()
	}
	q.mu.Unlock()
	q.sync()
	return c
}

// failed is told that a client was served in vain once more, for lack of descriptors or
// else of memory.
func (q *Queue) failed(c *client, descriptors bool) {
	q.mu.Lock()
	last := q.waiting.Back()
	for last != nil && last != c.elem && !last.Value.(*client).holds {
		last = last.Prev()
	}
	if descriptors && last != nil && last != c.elem {
		back := q.waiting.Remove(last).(*client)
		back.elem = nil
		close(back.turn)
	} else {
		q.pause = min(2*q.pause, LastPause)
	}
	if q.freed {
		q.next()
	} else {
		q.schedule()
	}
	q.mu.Unlock()
	q.shed()
}

// leave ends the wait of a client; served means that there were resources for it.
func (q *Queue) leave(c *client, served bool) {
	q.mu.Lock()
	if c.elem == nil { // it was sent away
		q.mu.Unlock()
		return
	}
	first := q.waiting.Front() == c.elem
	q.waiting.Remove(c.elem)
	if served {
		q.pause = firstPause
	}
	switch {
	case q.waiting.Len() == 0:
		q.stop()
		q.pause, q.freed = firstPause, false
	case first && served:
		q.next()
	case first:
		q.stop()
		q.schedule()
	}
	q.mu.Unlock()
	q.sync()
}

// schedule gives the first one its turn after the pause. mu is held.
func (q *Queue) schedule() {
	if q.timer == nil {
		q.timer = time.AfterFunc(q.pause, q.retryNow)
	}
}

// retryNow gives the first one its turn now, or once more if it has it.
func (q *Queue) retryNow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.waiting.Len() == 0:
	case q.timer != nil:
		q.next()
	default:
		q.freed = true
	}
}

// next gives the first one its turn. mu is held.
func (q *Queue) next() {
	q.stop()
	q.freed = false
	select {
	case q.waiting.Front().Value.(*client).turn <- struct{}{}:
	default:
	}
}

// stop ends the pause. mu is held.
func (q *Queue) stop() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}
