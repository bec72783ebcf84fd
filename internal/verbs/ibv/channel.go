//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// compChannel is verbs.CompChannel. The first of a device have a kernelChannel of their own, from which
// whoever waits takes the events. Those of later ones come by a sharedChannel.
type compChannel struct {
	ctx    *devContext
	kernel *kernelChannel
	shared *sharedChannel // nil if kernel is its own
	rd, wr channelWait

	mu     sync.Mutex
	cqs    []*cq // whose events come here
	users  int   // CQs, those that are being made or destroyed included
	closed bool
}

// A channelWait is one direction of a compChannel.
type channelWait interface {
	// wait calls try until that returns true: at once, and again after each event.
	wait(try func() bool) error
	// setDeadline sets when waits end, also one in progress. The zero time is never.
	setDeadline(t time.Time) error
	// wake has a wait in progress look again.
	wake()
	// close ends all waits.
	close() error
}

// leastOwn is how many channels of a device have a kernelChannel of their own at least, if it has fewer
// vectors: as many as there are lanes between two processes.
const leastOwn = 8

func newChannel(ctx *devContext) (*compChannel, error) {
	vector := ctx.nextVector()
	ch := &compChannel{ctx: ctx}
	var err error
	if ctx.ownChannels.Add(1) <= int32(max(len(ctx.vectors), leastOwn)) {
		if err = ch.open(vector); err != nil {
			ctx.ownChannels.Add(-1)
		}
	} else {
		ctx.ownChannels.Add(-1)
		err = ch.share(vector)
	}
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// open makes a channel with a kernelChannel of its own.
func (ch *compChannel) open(vector uint32) (err error) {
	if ch.kernel, err = newKernelChannel(ch.ctx, vector); err != nil {
		return err
	}
	var rd, wr ownWait
	if err = errors.Join(rd.init(ch.kernel, &wr), wr.init(ch.kernel, &rd)); err != nil {
		return errors.Join(err, rd.close(), wr.close(), ch.kernel.destroy())
	}
	ch.rd, ch.wr = &rd, &wr
	return nil
}

// share makes a channel with that of a vector.
func (ch *compChannel) share(vector uint32) (err error) {
	if ch.shared, err = ch.ctx.channels.hold(ch.ctx, vector); err != nil {
		return err
	}
	ch.kernel = ch.shared.kernelChannel
	ch.rd, ch.wr = newSharedWait(ch), newSharedWait(ch)
	ch.shared.join(ch)
	return nil
}

func (ch *compChannel) WaitRead(try func() bool) error  { return ch.rd.wait(try) }
func (ch *compChannel) WaitWrite(try func() bool) error { return ch.wr.wait(try) }

func (ch *compChannel) SetReadDeadline(t time.Time) error  { return ch.rd.setDeadline(t) }
func (ch *compChannel) SetWriteDeadline(t time.Time) error { return ch.wr.setDeadline(t) }

func (ch *compChannel) GetEvent() (verbs.CQ, error) {
	var got *cq
	err := ch.rd.wait(func() bool {
		got = ch.takeEvent()
		return got != nil
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// takeEvent takes an event of any CQ.
func (ch *compChannel) takeEvent() *cq {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, q := range ch.cqs {
		if q.raised > 0 {
			q.raised--
			// The next call asks the others first.
			ch.cqs = append(slices.Delete(ch.cqs, i, i+1), q)
			return q
		}
	}
	return nil
}

// raise counts an event of a CQ. The kernelChannel's lock is held.
func (ch *compChannel) raise(q *cq) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	q.raised++
}

// wake has both directions look again.
func (ch *compChannel) wake() {
	ch.rd.wake()
	ch.wr.wake()
}

func (ch *compChannel) isClosed() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.closed
}

// hold counts a CQ that is about to use the channel; release that it no longer does.
func (ch *compChannel) hold() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return verbs.ErrClosed
	}
	ch.users++
	return nil
}

func (ch *compChannel) release() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.users--
}

// add makes the events of a CQ known.
func (ch *compChannel) add(q *cq) {
	ch.mu.Lock()
	ch.cqs = append(ch.cqs, q)
	ch.mu.Unlock()
	ch.kernel.add(q)
}

// remove forgets a CQ that is to be destroyed and acknowledges its events.
func (ch *compChannel) remove(q *cq) {
	ch.kernel.remove(q)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if i := slices.Index(ch.cqs, q); i >= 0 {
		ch.cqs = slices.Delete(ch.cqs, i, i+1)
	}
}

func (ch *compChannel) Close() error {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return verbs.ErrClosed
	}
	if n := ch.users; n > 0 {
		ch.mu.Unlock()
		return fmt.Errorf("%w: %d CQs use the completion channel", verbs.ErrBusy, n)
	}
	ch.closed = true
	ch.mu.Unlock()
	err := errors.Join(ch.rd.close(), ch.wr.close())
	if ch.shared != nil {
		ch.shared.leave(ch)
		err = errors.Join(err, ch.ctx.channels.release(ch.shared))
	} else {
		err = errors.Join(err, ch.kernel.destroy())
		ch.ctx.ownChannels.Add(-1)
	}
	ch.ctx.users.Release()
	return err
}
