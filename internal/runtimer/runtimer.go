// Package runtimer has timers of which only time counts in which the process runs.
package runtimer

import (
	"sync"
	"time"
)

// steps is in how many steps the time of a Timer goes by.
const steps = 16

// A Timer calls a function when this process has run for so long: time in which it was
// stopped, or got no processor, counts as one step at the most. What others have sent
// meanwhile is read before the next one.
type Timer struct {
	f    func()
	step time.Duration

	mu    sync.Mutex
	left  int // steps; 0 when it has fired or was stopped
	timer *time.Timer
}

// After makes one. f runs on a goroutine of its own.
func After(d time.Duration, f func()) *Timer {
	t := &Timer{f: f, step: max(d/steps, 1), left: steps}
	t.mu.Lock()
	t.timer = time.AfterFunc(t.step, t.fire)
	t.mu.Unlock()
	return t
}

func (t *Timer) fire() {
	t.mu.Lock()
	if t.left > 1 {
		t.left--
		t.timer.Reset(t.step)
		t.mu.Unlock()
		return
	}
	fire := t.left == 1
	t.left = 0
	t.mu.Unlock()
	if fire {
		t.f()
	}
}

// Stop keeps the function from being called, if it was not yet.
func (t *Timer) Stop() {
	t.mu.Lock()
	t.left = 0
	t.timer.Stop()
	t.mu.Unlock()
}
