//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A sharedWait is one direction of a compChannel on a sharedChannel: it waits within the process. It
// allocates nothing after init.
type sharedWait struct {
	ch   *compChannel
	busy sync.Mutex // held by the one who waits

	waiting atomic.Bool
	again   chan struct{} // has the one who waits look again
	timer   *time.Timer   // runs only while somebody sleeps

	mu    sync.Mutex
	until time.Time
}

func newSharedWait(ch *compChannel) *sharedWait {
	w := &sharedWait{ch: ch, again: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// wake has the one who waits look again. Who begins to wait later looks in any case.
func (w *sharedWait) wake() {
	if !w.waiting.Load() {
		return
	}
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// setDeadline implements channelWait, also for a wait in progress.
func (w *sharedWait) setDeadline(t time.Time) error {
	if w.ch.isClosed() {
		return os.ErrClosed
	}
	w.mu.Lock()
	w.until = t
	w.mu.Unlock()
	w.wake()
	return nil
}

// left is the time to the deadline, and whether there is one.
func (w *sharedWait) left() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until.IsZero() {
		return 0, false
	}
	return time.Until(w.until), true
}

// wait implements channelWait.
func (w *sharedWait) wait(try func() bool) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	w.waiting.Store(true)
	defer w.waiting.Store(false)
	select {
	case <-w.again: // of an earlier wait
	default:
	}
	for {
		if err := w.over(); err != nil {
			return err
		}
		if left, limited := w.left(); limited && left <= 0 {
			return os.ErrDeadlineExceeded
		}
		if try() {
			return nil
		}
		w.sleep()
	}
}

// over returns why nobody can wait any more, nil if one can.
func (w *sharedWait) over() error {
	switch {
	case w.ch.isClosed():
		return os.ErrClosed
	case w.ch.shared.lost.Load():
		return errChannelGone
	}
	return nil
}

// sleep sleeps until there is reason to look again: what was waited for may have come, the
// deadline have passed or been moved, or the channel be closed.
func (w *sharedWait) sleep() {
	left, limited := w.left()
	if !limited {
		<-w.again
		return
	}
	w.timer.Reset(left)
	select {
	case <-w.again:
	case <-w.timer.C:
	}
	w.timer.Stop()
}

func (w *sharedWait) close() error {
	w.wake()
	return nil
}
