//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

var (
	noDeadline time.Time
	longAgo    = time.Unix(1, 0)
)

// waitError is err of a RawConn as the os package would give it: its poller's own
// word for a closed file is not exported.
func waitError(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return os.ErrClosed
}

// A waiter is one direction of a channel.
type waiter struct {
	ch    *compChannel
	other *waiter
	file  *os.File
	raw   syscall.RawConn
	poll  func(uintptr) bool // made once, so that waiting allocates nothing

	busy sync.Mutex // held by the one who waits
	try  func() bool
	err  error // the channel's own, which ends the wait
	left int   // waits since events were last consumed

	mu       sync.Mutex
	deadline time.Time // the caller's
	waiting  bool
	kicked   bool // the file's deadline is longAgo instead
}

func (w *waiter) init(ch *compChannel, other *waiter, fd int) (err error) {
	w.ch, w.other = ch, other
	w.poll = func(uintptr) bool { return w.look() }
	if w.file, err = pollable(fd, "rdma-completion-channel"); err != nil {
		return err
	}
	w.raw, err = w.file.SyscallConn()
	return err
}

func (w *waiter) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// maxLeft bounds the events that waits which found at once what they wanted may
// leave on the channel: the kernel keeps each of them.
const maxLeft = 32

// look asks the caller whether it has what it wants, again after every event.
func (w *waiter) look() bool {
	for {
		if w.try() {
			if w.left++; w.left >= maxLeft {
				w.consume()
				w.err = nil // the next wait's business
			}
			return true
		}
		if !w.consume() {
			return w.err != nil
		}
	}
}

// consume takes the events that there are, tells the other direction, and says
// whether there were any.
func (w *waiter) consume() (any bool) {
	w.left = 0
	any, w.err = w.ch.consume()
	if any {
		w.other.kick()
	}
	return any
}

func (w *waiter) wait(try func() bool) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	w.try, w.err = try, nil
	err := w.parkLocked(w.poll)
	w.try = nil
	if err == nil {
		err = w.err
	}
	return err
}

// park waits, in this direction, until poll returns true.
func (w *waiter) park(poll func(uintptr) bool) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	return w.parkLocked(poll)
}

func (w *waiter) parkLocked(poll func(uintptr) bool) error {
	w.mu.Lock()
	w.waiting = true
	w.mu.Unlock()
	for {
		err := w.raw.Read(poll)
		if err != nil && w.unkick() && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		w.mu.Lock()
		w.waiting = false
		w.mu.Unlock()
		w.unkick()
		return waitError(err)
	}
}

// kick makes the other direction look again if it waits.
func (w *waiter) kick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting && !w.kicked {
		w.kicked = true
		_ = w.file.SetReadDeadline(longAgo) // a closed file wakes its waiter itself
	}
}

// unkick puts the caller's deadline back and says whether it had to.
func (w *waiter) unkick() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.kicked {
		return false
	}
	w.kicked = false
	_ = w.file.SetReadDeadline(w.deadline)
	return true
}

func (w *waiter) setDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	if w.kicked {
		return nil // unkick sets it
	}
	return w.file.SetReadDeadline(t)
}
