package faulty

import (
	"fmt"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/wakeup"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// A channelWait is one direction of a channel. Its functions are made once, so that waiting
// allocates nothing.
type channelWait struct {
	wakeup.Deadline
	ch    *CompChannel
	use   sync.Mutex // held by the one who waits
	try   func() bool
	tried bool // since the wait began
	poll  func() bool
	under func(func() bool) error // of the channel below

	mu    sync.Mutex // guards what follows
	dice  *dice
	timer *time.Timer
}

var errGone = fmt.Errorf("%w: it was removed", verbs.ErrNoDevice)

func (w *channelWait) init(ch *CompChannel, under func(func() bool) error, set func(time.Time) error) {
	w.ch, w.under, w.dice = ch, under, ch.ctx.d.newDice()
	w.Init(set)
	w.poll = func() bool {
		if w.tried && ch.mute.Load() {
			return false // what woke us is lost
		}
		w.tried = true
		return w.try()
	}
}

func (w *channelWait) wait(try func() bool) error {
	w.use.Lock()
	defer w.use.Unlock()
	w.try, w.tried = try, false
	w.Begin()
	w.disturb()
	var err error
	for done := false; !done; {
		if w.ch.gone.Load() {
			if err = nil; !try() {
				err = errGone
			}
			break
		}
		err = w.under(w.poll)
		done = err == nil || !w.Woken()
	}
	w.End()
	w.try = nil
	return err
}

// disturb has a wait woken for nothing now and then.
func (w *channelWait) disturb() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dice.chance(8) {
		return
	}
	d := w.dice.delay()
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.Wake)
	} else {
		w.timer.Reset(d)
	}
}

func (w *channelWait) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}
