// Package wakeup ends a wait of Go's network poller from within the process, without a system
// call: a deadline in the past is set, and the one that the application set is put back.
package wakeup

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Past is a deadline that has passed.
var Past = time.Unix(1, 0)

// A Deadline is the deadline of one goroutine at a time that waits, and wakes it. Init comes
// first. A wait goes so:
//
//	d.Begin()
//	err := wait()
//	for err != nil && d.Woken() {
//		err = wait()
//	}
//	d.End()
//
// where wait first tries whether there is what it waits for. Nothing here allocates.
//
// Wake and SetDeadline may be called at any time by any goroutine.
type Deadline struct {
	set     func(time.Time) error
	waiting atomic.Bool

	mu    sync.Mutex // guards what follows
	until time.Time  // as the application set it
	woken bool       // Past was set instead
}

// Init has set, which is called by one goroutine at a time, move the deadline of the wait.
func (d *Deadline) Init(set func(time.Time) error) { d.set = set }

// Begin begins a wait: Wake ends it from now on.
func (d *Deadline) Begin() { d.waiting.Store(true) }

// End ends a wait.
func (d *Deadline) End() { d.waiting.Store(false) }

// Wake ends the wait of whoever has begun one. One that begins later needs no waking, since it
// tries first.
func (d *Deadline) Wake() {
	if !d.waiting.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.woken {
		d.woken = true
		_ = d.set(Past) // fails if the file is closed, and then nobody waits
	}
}

// Woken reports whether Wake was called since it was asked last, and puts the application's
// deadline back. A Wake that came too late for one wait ends the next at once, which therefore
// asks as well.
func (d *Deadline) Woken() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.woken {
		return false
	}
	d.woken = false
	_ = d.set(d.until) // an error ends the next wait
	return true
}

// SetDeadline sets the application's deadline. The zero time is none.
func (d *Deadline) SetDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = t
	if d.woken {
		return nil // Woken sets it
	}
	return d.set(t)
}

// Error returns the error of a syscall.RawConn as package os would give it: the poller's own for a
// closed file is not exported.
func Error(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return os.ErrClosed
}
