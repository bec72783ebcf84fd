package rdmanet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// waitContext is what context.WithTimeoutCause makes, with a timer only from when somebody waits
// for its end: most dials do not wait.
type waitContext struct {
	context.Context // that it is made of
	until           time.Time
	cause           error

	begin sync.Once
	timed atomic.Pointer[timedContext]
}

type timedContext struct {
	context.Context
	cancel context.CancelFunc
}

// parentContext is the context that one with a timer is made of, until that is stopped. The runtime keeps a
// timer that was stopped, and what its function refers to, for as long as the timer may have had to run: the
// context is the program's, and what hangs on it may be large.
type parentContext struct {
	of atomic.Pointer[context.Context]
}

var (
	_ context.Context = (*waitContext)(nil)
	_ context.Context = (*parentContext)(nil)
)

// newWaitContext returns one that ends after d for a cause. The caller must stop it.
func newWaitContext(ctx context.Context, d time.Duration, cause error) *waitContext {
	return &waitContext{Context: ctx, until: time.Now().Add(d), cause: cause}
}

// stop ends it, and releases the timer.
func (w *waitContext) stop() {
	w.begin.Do(func() { w.timed.Store(&stopped) })
	w.timed.Load().cancel()
}

// stopped is what a context is that nobody has waited for.
var stopped = func() (t timedContext) {
	t.Context, t.cancel = context.WithCancel(context.Background())
	t.cancel()
	return t
}()

var background = context.Background()

func (w *waitContext) start() *timedContext {
	w.begin.Do(func() {
		parent := new(parentContext)
		parent.of.Store(&w.Context)
		t := new(timedContext)
		var cancel context.CancelFunc
		t.Context, cancel = context.WithDeadlineCause(parent, w.until, w.cause)
		t.cancel = func() {
			cancel()
			parent.of.Store(&background)
		}
		w.timed.Store(t)
	})
	return w.timed.Load()
}

// now is the context of which the timer runs, or that it is made of if none has to.
func (w *waitContext) now() context.Context {
	if t := w.timed.Load(); t != nil {
		return t
	}
	if !time.Now().Before(w.until) {
		return w.start()
	}
	return w.Context
}

func (w *waitContext) Deadline() (time.Time, bool) {
	if at, ok := w.Context.Deadline(); ok && at.Before(w.until) {
		return at, true
	}
	return w.until, true
}

func (w *waitContext) Done() <-chan struct{} { return w.start().Done() }
func (w *waitContext) Err() error            { return w.now().Err() }
func (w *waitContext) Value(key any) any     { return w.now().Value(key) }

func (p *parentContext) Deadline() (time.Time, bool) { return (*p.of.Load()).Deadline() }
func (p *parentContext) Done() <-chan struct{}       { return (*p.of.Load()).Done() }
func (p *parentContext) Err() error                  { return (*p.of.Load()).Err() }
func (p *parentContext) Value(key any) any           { return (*p.of.Load()).Value(key) }
