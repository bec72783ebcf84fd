//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"os"
	"sync"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs/wakeup"
)

// A channelWait is one direction of a channel.
type channelWait struct {
	wakeup.Deadline
	ch    *compChannel
	other *channelWait
	file  *os.File
	raw   syscall.RawConn
	poll  func(uintptr) bool // made once, so that waiting allocates nothing

	busy sync.Mutex // held by the one who waits
	try  func() bool
	err  error // the channel's own, which ends the wait
	left int   // waits since events were last consumed
}

func (w *channelWait) init(ch *compChannel, other *channelWait, fd int) (err error) {
	w.ch, w.other = ch, other
	w.poll = func(uintptr) bool { return w.tryAgain() }
	if w.file, err = pollable(fd, "rdma-completion-channel"); err != nil {
		return err
	}
	w.Init(w.file.SetReadDeadline)
	w.raw, err = w.file.SyscallConn()
	return err
}

func (w *channelWait) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// maxLeft bounds the events that waits which found at once what they wanted may
// leave on the channel: the kernel keeps each of them.
const maxLeft = 32

// tryAgain asks the caller whether it has what it wants, again after every event.
func (w *channelWait) tryAgain() bool {
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
func (w *channelWait) consume() (any bool) {
	w.left = 0
	any, w.err = w.ch.consume()
	if any {
		w.other.Wake()
	}
	return any
}

func (w *channelWait) wait(try func() bool) error {
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
func (w *channelWait) park(poll func(uintptr) bool) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	return w.parkLocked(poll)
}

func (w *channelWait) parkLocked(poll func(uintptr) bool) error {
	w.Begin()
	err := w.raw.Read(poll)
	for err != nil && w.Woken() {
		err = w.raw.Read(poll)
	}
	w.End()
	return wakeup.Error(err)
}
