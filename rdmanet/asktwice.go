package rdmanet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// On a network a request may be lost, and the kernel repeats it only after seconds. So a
// dial that has no answer asks once more, by a second id with a QP of its own, and confirms
// the answer that comes first. What is not confirmed is no connection: the listener is
// told that the other request was taken back, or never had it.

const (
	// askAgainAfter is how long an answer may take. While answers to others come, the
	// listener is at work on the requests before, and this one is not lost.
	askAgainAfter = 500 * time.Millisecond
	// maxSecondAsks bounds the second requests of a process that are under way.
	maxSecondAsks = 16
)

var (
	lastAnswer atomic.Int64 // when a listener last answered a dial, since epoch
	secondAsks = make(chan struct{}, maxSecondAsks)

	errOtherAnswer = errors.New("another request of the same dial was answered first")
)

// noteAnswer is called when a listener has answered.
func noteAnswer() { lastAnswer.Store(int64(time.Since(epoch))) }

// An asking is one of the requests of a dial.
type asking struct {
	confirmed *atomic.Bool // one of them was
	again     func()       // begins the second; nil for that itself

	mu      sync.Mutex
	claimed bool // this one was
	timer   *time.Timer
	stopped bool
}

// claim reports whether this request is the one to be confirmed, once it is for ever.
func (a *asking) claim() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claimed = a.claimed || a.confirmed.CompareAndSwap(false, true)
	return a.claimed
}

// hasClaimed reports whether claim has been true.
func (a *asking) hasClaimed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.claimed
}

// sent is called when the request has gone; stop when there is an answer or none will come.
func (a *asking) sent() (stop func()) {
	if a.again == nil {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(askAgainAfter, a.unanswered)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stopped = true
		a.timer.Stop()
	}
}

// unanswered begins the second request, or waits on where it is not the time for it.
func (a *asking) unanswered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return
	}
	if quiet := time.Since(epoch) - time.Duration(lastAnswer.Load()); quiet < askAgainAfter && lastAnswer.Load() != 0 {
		a.timer.Reset(askAgainAfter - quiet)
		return
	}
	select {
	case secondAsks <- struct{}{}:
		a.again()
	default:
		a.timer.Reset(askAgainAfter)
	}
}

// askTwice makes an attempt, and a second one beside it if the first has it begun.
func askTwice[C any](ctx context.Context, attempt func(context.Context, *asking) (C, error)) (C, error) {
	type result struct {
		conn C
		err  error
	}
	ctx, end := context.WithCancel(ctx) // of whichever is still at it in the end
	defer end()
	first, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	confirmed := new(atomic.Bool)
	second := make(chan result, 1)
	again := func() {
		go func() {
			defer func() { <-secondAsks }()
			a := &asking{confirmed: confirmed}
			c, err := attempt(ctx, a)
			second <- result{c, err}
			if a.hasClaimed() { // also in vain: the first is not confirmed any more
				lose(errOtherAnswer)
			}
		}()
	}
	a := &asking{confirmed: confirmed, again: again}
	conn, err := attempt(first, a)
	if err == nil || a.claim() {
		return conn, err // and the second, if it has begun, is not confirmed any more
	}
	r := <-second // which was answered and is being confirmed
	return r.conn, r.err
}
