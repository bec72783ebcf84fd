package faulty

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// CompChannel is a verbs.CompChannel over another, whose waits it also ends by itself.
type CompChannel struct {
	verbs.CompChannel
	ctx    *Context
	rd, wr channelWait
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
func (ch *CompChannel) SetReadDeadline(t time.Time) error { return ch.rd.SetDeadline(t) }

// SetWriteDeadline implements verbs.CompChannel.
func (ch *CompChannel) SetWriteDeadline(t time.Time) error { return ch.wr.SetDeadline(t) }

// wake has both directions try again.
func (ch *CompChannel) wake() {
	if ch.mute.Load() && !ch.gone.Load() {
		return
	}
	ch.rd.Wake()
	ch.wr.Wake()
}

// GetEvent implements verbs.CompChannel.
func (ch *CompChannel) GetEvent() (verbs.CQ, error) {
	w := &ch.rd
	w.use.Lock()
	defer w.use.Unlock()
	w.Begin()
	defer w.End()
	for {
		if c := ch.ownEvent(); c != nil {
			return c, nil
		}
		if ch.gone.Load() {
			return nil, errGone
		}
		under, err := ch.CompChannel.GetEvent()
		if err != nil {
			if w.Woken() {
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
