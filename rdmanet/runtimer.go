package rdmanet

import (
	"sync"
	"time"
)

// runSteps is in how many steps the time of a runTimer goes by.
const runSteps = 16

// A runTimer calls a function when this process has run for so long: time in which it was
// stopped, or got no processor, counts as one step at the most.
type runTimer struct {
	f    func()
	step time.Duration

	mu    sync.Mutex
	left  int // steps; 0 when it has fired or was stopped
	timer *time.Timer
}

// afterRunning makes one. f runs on a goroutine of its own.
func afterRunning(d time.Duration, f func()) *runTimer {
	t := &runTimer{f: f, step: max(d/runSteps, 1), left: runSteps}
	t.mu.Lock()
	t.timer = time.AfterFunc(t.step, t.fire)
	t.mu.Unlock()
	return t
}

func (t *runTimer) fire() {
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

// stop keeps the function from being called, if it was not yet.
func (t *runTimer) stop() {
	t.mu.Lock()
	t.left = 0
	t.timer.Stop()
	t.mu.Unlock()
}
