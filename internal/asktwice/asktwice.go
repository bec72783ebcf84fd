// Package asktwice repeats the requests of dials that a network may have lost.
//
// On a network a request may be lost, and the kernel repeats it only after seconds. So a
// dial that has no answer asks once more, by a second id with a QP of its own, and confirms
// the answer that comes first. What is not confirmed is no connection: the listener is
// told that the other request was taken back, or never had it.
package asktwice

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// After is how long an answer may take. While a listener answers others of the process, it is
	// at work on the requests before, and this one is not lost.
	After = 500 * time.Millisecond
	// maxSecond bounds the second requests of a process that are under way.
	maxSecond = 16
)

var (
	// ErrOtherAnswer is why a request is not confirmed.
	ErrOtherAnswer = errors.New("another request of the same dial was answered first")

	second atomic.Int32 // requests that are under way

	listeners struct {
		mu  sync.Mutex
		all map[netip.AddrPort]*listener // that are asked just now
	}
)

// A listener is what is known of one while dials ask it.
type listener struct {
	addr   netip.AddrPort
	asking int // requests; listeners.mu guards it

	mu       sync.Mutex
	answered time.Time // one of them, the last time
}

func take(addr netip.AddrPort) *listener {
	listeners.mu.Lock()
	defer listeners.mu.Unlock()
	l := listeners.all[addr]
	if l == nil {
		if listeners.all == nil {
			listeners.all = map[netip.AddrPort]*listener{}
		}
		l = &listener{addr: addr}
		listeners.all[addr] = l
	}
	l.asking++
	return l
}

func (l *listener) leave() {
	listeners.mu.Lock()
	defer listeners.mu.Unlock()
	if l.asking--; l.asking == 0 {
		delete(listeners.all, l.addr)
	}
}

func (l *listener) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = time.Now()
}

// quiet is for how long the listener has answered nobody.
func (l *listener) quiet() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered.IsZero() {
		return After
	}
	return time.Since(l.answered)
}

// A Request is one of the requests of a dial. One goroutine makes it.
type Request struct {
	to        *listener
	confirmed *atomic.Bool // one of the dial's was
	again     func()       // begins the second; nil for that itself, and where there is to be none

	mu      sync.Mutex
	claimed bool // this one was
	timer   *time.Timer
	stopped bool
}

// Only has the dial make no second request. It is to be called before Sent.
func (r *Request) Only() { r.again = nil }

// Answered records that the listener has answered, and reports whether this request is the one to be
// confirmed. If so the dial confirms no other any more.
func (r *Request) Answered() bool {
	r.to.note()
	return r.claim()
}

func (r *Request) claim() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claimed = r.claimed || r.confirmed.CompareAndSwap(false, true)
	return r.claimed
}

func (r *Request) hasClaimed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claimed
}

// Sent is called when the request has gone; stop when there is an answer or none will come.
func (r *Request) Sent() (stop func()) {
	if r.again == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(After, r.unanswered)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stopped = true
		r.timer.Stop()
	}
}

// unanswered begins the second request, or waits on where it is not the time for it.
func (r *Request) unanswered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if quiet := r.to.quiet(); quiet < After {
		r.timer.Reset(After - quiet)
		return
	}
	if second.Add(1) > maxSecond {
		second.Add(-1)
		r.timer.Reset(After)
		return
	}
	r.again()
}

// Dial makes an attempt to reach the listener at to, and a second one beside it if the first has
// had no answer for too long. An attempt is to return when its context ends, and with an error
// unless its request was to be confirmed.
func Dial[C any](ctx context.Context, to netip.AddrPort, attempt func(context.Context, *Request) (C, error)) (C, error) {
	type result struct {
		conn C
		err  error
	}
	l := take(to)
	defer l.leave()
	ctx, end := context.WithCancel(ctx) // of whichever is still at it in the end
	defer end()
	first, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	confirmed := new(atomic.Bool)
	other := make(chan result, 1)
	again := func() {
		take(to) // it may end last
		go func() {
			defer second.Add(-1)
			defer l.leave()
			r := &Request{to: l, confirmed: confirmed}
			c, err := attempt(ctx, r)
			other <- result{c, err}
			if r.hasClaimed() { // also in vain: the first is not confirmed any more
				lose(ErrOtherAnswer)
			}
		}()
	}
	r := &Request{to: l, confirmed: confirmed, again: again}
	conn, err := attempt(first, r)
	if err == nil || r.claim() {
		return conn, err // and the second, if it has begun, is not confirmed any more
	}
	o := <-other // which was answered and is being confirmed
	return o.conn, o.err
}
