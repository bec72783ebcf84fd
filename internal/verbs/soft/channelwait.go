//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A waiter is one direction of a channel. poll is made once, so that waiting and
// waking allocate nothing.
type waiter struct {
	event   *eventFile
	write   bool       // its direction in the poller
	mu      sync.Mutex // held by the one who waits
	try     func() bool
	poll    func(uintptr) bool // calls try
	waiting atomic.Bool
	gone    bool // retired; written under mu and dl
	waits   uint8

	dl       sync.Mutex // guards what follows
	deadline time.Time  // as the application set it
	roused   bool       // the poller's is longPast instead
}

// longPast is a deadline that has passed.
var longPast = time.Unix(1, 0)

func (w *waiter) init(e *eventFile, write bool) {
	w.event, w.write = e, write
	w.poll = func(uintptr) bool { return w.try() }
}

func (w *waiter) park() error {
	if w.write {
		return w.event.raw.Write(w.poll)
	}
	return w.event.raw.Read(w.poll)
}

func (w *waiter) set(t time.Time) error {
	if w.write {
		return w.event.file.SetWriteDeadline(t)
	}
	return w.event.file.SetReadDeadline(t)
}

// wait parks until that ends for another reason than a rouse.
func (w *waiter) wait(try func() bool) error {
	w.mu.Lock()
	if w.gone {
		w.mu.Unlock()
		return os.ErrClosed
	}
	w.try = try
	if w.waits++; w.waits%64 == 1 {
		lookAtProcessors()
	}
	w.waiting.Store(true)
	err := w.park()
	for err != nil && w.wasRoused() {
		mayPause()
		err = w.park()
	}
	w.waiting.Store(false)
	w.try = nil
	w.mu.Unlock()
	return waitError(err)
}

// rouse wakes the one who waits, or is about to, without the kernel: of a deadline
// that has passed the network poller tells the scheduler at once. Who begins to wait
// after the look at waiting finds what there is by trying.
func (w *waiter) rouse() {
	if !w.waiting.Load() {
		return
	}
	w.dl.Lock()
	if !w.roused && !w.gone {
		w.roused = true
		_ = w.set(longPast) // fails if the channel is closed, and then nobody waits
	}
	w.dl.Unlock()
}

// wasRoused says whether rouse ended a wait, and puts the application's deadline back.
func (w *waiter) wasRoused() bool {
	w.dl.Lock()
	defer w.dl.Unlock()
	if !w.roused {
		return false
	}
	w.roused = false
	_ = w.set(w.deadline)
	return true
}

func (w *waiter) setDeadline(t time.Time) error {
	w.dl.Lock()
	defer w.dl.Unlock()
	if w.gone {
		return os.ErrClosed
	}
	w.deadline = t
	if w.roused {
		return nil // until wasRoused
	}
	return w.set(t)
}
