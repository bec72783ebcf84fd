//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"time"
)

// handshakeSteps is in how many steps the time of a handshake goes by, so that a
// process that was stopped has lost one of them at the most.
const handshakeSteps = 16

// A timeout runs a function when a time has gone by in which this process ran: it goes by
// in steps, and one in which the process was stopped is one step however long.
type timeout struct {
	mu    sync.Mutex
	timer *time.Timer // fires after each step
	left  int         // steps; 0 once it is over
}

// startTimeout has f run after d unless the result is stopped before.
func startTimeout(d time.Duration, f func()) *timeout {
	t := &timeout{left: handshakeSteps}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(d/handshakeSteps, func() {
		if t.step(d / handshakeSteps) {
			f()
		}
	})
	return t
}

// step notes that one more step has gone by, and reports whether it was the last.
func (t *timeout) step(next time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == 0 {
		return false
	}
	if t.left--; t.left > 0 {
		t.timer.Reset(next)
	}
	return t.left == 0
}

// stop may be called more than once, and after the function ran.
func (t *timeout) stop() {
	t.mu.Lock()
	t.left = 0
	t.timer.Stop()
	t.mu.Unlock()
}
