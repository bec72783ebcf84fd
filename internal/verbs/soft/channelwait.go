//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/wakeup"
)

// A channelWait is one direction of a channel. poll and park are made once, so that waiting and
// waking allocate nothing.
type channelWait struct {
	wakeup.Deadline
	mu    sync.Mutex // held by the one who waits
	try   func() bool
	poll  func(uintptr) bool // calls try
	park  func(func(uintptr) bool) error
	waits uint8
}

func (w *channelWait) init(park func(func(uintptr) bool) error, setDeadline func(time.Time) error) {
	w.poll = func(uintptr) bool { return w.try() }
	w.park = park
	w.Init(setDeadline)
}

// wait parks until try returns true, the deadline passes or the channel is closed.
func (w *channelWait) wait(try func() bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.try = try
	if w.waits++; w.waits%64 == 1 {
		lookAtProcessors()
	}
	w.Begin()
	err := w.park(w.poll)
	for err != nil && w.Woken() {
		mayPause()
		err = w.park(w.poll)
	}
	w.End()
	w.try = nil
	return wakeup.Error(err)
}
