package faulty

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// CompChannel is a verbs.CompChannel over another. What it has to tell besides, it tells
// by a deadline that has passed, and puts back the one that the user has set.
type CompChannel struct {
	verbs.CompChannel
	ctx    *Context
	rd, wr sleeper
	mute   atomic.Bool // no notification gets through
	gone   atomic.Bool // the device was removed

	mu  sync.Mutex
	cqs []*CQ
}

func newChannel(ctx *Context, under verbs.CompChannel) *CompChannel {
	ch := &CompChannel{CompChannel: under, ctx: ctx}
	ch.rd.init(ch, under.WaitRead, under.SetReadDeadline)
	ch.wr.init(ch, under.WaitWrite, under.SetWriteDeadline)
	return ch
}

// Mute has notifications of completions get lost from now on, or no more.
func (ch *CompChannel) Mute(mute bool) { ch.mute.Store(mute) }

// WaitRead implements verbs.CompChannel.
func (ch *CompChannel) WaitRead(try func() bool) error { return ch.rd.wait(try) }

// WaitWrite implements verbs.CompChannel.
func (ch *CompChannel) WaitWrite(try func() bool) error { return ch.wr.wait(try) }

// SetReadDeadline implements verbs.CompChannel.
func (ch *CompChannel) SetReadDeadline(t time.Time) error { return ch.rd.setDeadline(t) }

// SetWriteDeadline implements verbs.CompChannel.
func (ch *CompChannel) SetWriteDeadline(t time.Time) error { return ch.wr.setDeadline(t) }

func (ch *CompChannel) rouse() {
	if ch.mute.Load() && !ch.gone.Load() {
		return
	}
	ch.rd.rouse()
	ch.wr.rouse()
}

// GetEvent implements verbs.CompChannel.
func (ch *CompChannel) GetEvent() (verbs.CQ, error) {
	s := &ch.rd
	s.use.Lock()
	defer s.use.Unlock()
	s.waiting.Store(true)
	defer s.waiting.Store(false)
	for {
		if c := ch.ownEvent(); c != nil {
			return c, nil
		}
		if ch.gone.Load() {
			return nil, errGone
		}
		under, err := ch.CompChannel.GetEvent()
		if err != nil {
			if s.wasRoused() {
				continue
			}
			return nil, err
		}
		ch.ctx.mu.Lock()
		c := ch.ctx.cqs[under]
		ch.ctx.mu.Unlock()
		if c != nil && c.gotEvent() {
			return c, nil
		}
	}
}

func (ch *CompChannel) ownEvent() *CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, c := range ch.cqs {
		if c.takeEvent() {
			// The next call asks the others first.
			ch.cqs = append(slices.Delete(ch.cqs, i, i+1), c)
			return c
		}
	}
	return nil
}

func (ch *CompChannel) add(c *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs = append(ch.cqs, c)
}

func (ch *CompChannel) remove(c *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if i := slices.Index(ch.cqs, c); i >= 0 {
		ch.cqs = slices.Delete(ch.cqs, i, i+1)
	}
}

// Close implements verbs.CompChannel.
func (ch *CompChannel) Close() error {
	err := ch.ctx.d.gone(kindChannel, ch.CompChannel.Close())
	if err == nil {
		ch.rd.stop()
		ch.wr.stop()
		ch.ctx.mu.Lock()
		delete(ch.ctx.channels, ch)
		ch.ctx.mu.Unlock()
	}
	return err
}

// A sleeper is one direction of a channel. Its functions are made once, so that waiting
// allocates nothing.
type sleeper struct {
	ch      *CompChannel
	use     sync.Mutex // held by the one who waits
	try     func() bool
	looked  bool // since the wait began
	look    func() bool
	below   func(func() bool) error
	waiting atomic.Bool

	mu       sync.Mutex // guards what follows
	dice     *dice
	timer    *time.Timer
	deadline time.Time // as the user set it
	roused   bool      // the one below is longPast instead
	set      func(time.Time) error
}

var errGone = fmt.Errorf("%w: it was removed", verbs.ErrNoDevice)

// longPast is a deadline that has passed.
var longPast = time.Unix(1, 0)

func (s *sleeper) init(ch *CompChannel, below func(func() bool) error, set func(time.Time) error) {
	s.ch, s.below, s.set, s.dice = ch, below, set, ch.ctx.d.newDice()
	s.look = func() bool {
		if s.looked && ch.mute.Load() {
			return false // what woke us is lost
		}
		s.looked = true
		return s.try()
	}
}

func (s *sleeper) wait(try func() bool) error {
	s.use.Lock()
	defer s.use.Unlock()
	s.try, s.looked = try, false
	s.waiting.Store(true)
	s.disturb()
	var err error
	for done := false; !done; {
		if s.ch.gone.Load() {
			if err = nil; !try() {
				err = errGone
			}
			break
		}
		err = s.below(s.look)
		done = err == nil || !s.wasRoused()
	}
	s.waiting.Store(false)
	s.try = nil
	return err
}

// disturb has a sleeper woken for nothing now and then.
func (s *sleeper) disturb() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dice.chance(8) {
		return
	}
	d := s.dice.delay()
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.rouse)
	} else {
		s.timer.Reset(d)
	}
}

func (s *sleeper) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

// rouse wakes the one who waits. Who begins to wait after the look at waiting finds what
// there is by trying.
func (s *sleeper) rouse() {
	if !s.waiting.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.roused {
		s.roused = true
		_ = s.set(longPast) // fails if the channel is closed, and then nobody waits
	}
}

// wasRoused says whether rouse ended a wait, and puts the user's deadline back.
func (s *sleeper) wasRoused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.roused {
		return false
	}
	s.roused = false
	_ = s.set(s.deadline)
	return true
}

func (s *sleeper) setDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.roused {
		return nil // until wasRoused
	}
	return s.set(t)
}
