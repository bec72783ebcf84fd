//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/wakeup"
)

// An ownWait is one direction of a compChannel that has a kernelChannel of its own. Its descriptor becomes
// readable with an event and never writable, so each direction waits for reads, on a duplicate of its own.
//
// An event is consumed by one of the two directions, and the poller may have found no
// reason yet to wake the other. Whoever consumes therefore wakes the other, which tries again.
type ownWait struct {
	wakeup.Deadline
	kernel *kernelChannel
	other  *ownWait
	file   *os.File
	raw    syscall.RawConn
	poll   func(uintptr) bool // made once, so that waiting allocates nothing

	busy sync.Mutex // held by the one who waits
	try  func() bool
	err  error // the channel's own, which ends the wait
	left int   // waits since events were last consumed
}

func (w *ownWait) init(k *kernelChannel, other *ownWait) error {
	w.kernel, w.other = k, other
	w.poll = func(uintptr) bool { return w.tryAgain() }
	return w.open(k.fd())
}

// open has w wait for a descriptor.
func (w *ownWait) open(fd int) (err error) {
	if w.file, err = pollable(fd, "rdma-completion-channel"); err != nil {
		return err
	}
	w.Init(w.file.SetReadDeadline)
	w.raw, err = w.file.SyscallConn()
	return err
}

func (w *ownWait) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

func (w *ownWait) wake() { w.Wake() }

func (w *ownWait) setDeadline(t time.Time) error { return w.SetDeadline(t) }

// maxLeft bounds the events that waits which found at once what they wanted may
// leave on the channel: the kernel keeps each of them.
const maxLeft = 32

// tryAgain asks the caller whether it has what it wants, again after every event.
func (w *ownWait) tryAgain() bool {
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

// consume takes the events that there are, wakes the other direction, and reports
// whether there were any.
func (w *ownWait) consume() (any bool) {
	w.left = 0
	for {
		var ch *compChannel
		if ch, w.err = w.kernel.take(); ch == nil {
			break
		}
		any = true
	}
	if any {
		w.other.wake()
	}
	return any
}

func (w *ownWait) wait(try func() bool) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	w.try, w.err = try, nil
	w.Begin()
	err := w.raw.Read(w.poll)
	for err != nil && w.Woken() {
		err = w.raw.Read(w.poll)
	}
	w.End()
	w.try = nil
	if err != nil {
		return wakeup.Error(err)
	}
	return w.err
}
