//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// compChannel is verbs.CompChannel on ibv_comp_channel, whose descriptor becomes
// readable with an event and never writable. So each direction waits for reads, on
// a duplicate of its own.
//
// An event is consumed by one of the two directions, and the poller may have found no
// reason yet to wake the other. Whoever consumes therefore wakes the other, which tries again.
type compChannel struct {
	ctx    *devContext
	handle uintptr // struct ibv_comp_channel
	vector uint32  // which of the device's interrupts tells of completions
	rd, wr channelWait

	mu     sync.Mutex
	cqs    map[uintptr]*cq // by their C structs
	users  int             // CQs, those that are being made or destroyed included
	closed bool
	// The arguments of ibv_get_cq_event and where it puts its results.
	args [3]uintptr
	out  *eventOut
	mem  *arena
}

// eventOut is what ibv_get_cq_event fills, in C memory.
type eventOut struct {
	cq, context uintptr
}

func newChannel(ctx *devContext) (_ *compChannel, err error) {
	r, errno := ctx.makes(ctx.lib.createCompChannel, ctx.handle)
	if r == 0 {
		return nil, failed("ibv_create_comp_channel", errno)
	}
	ch := &compChannel{ctx: ctx, handle: r, vector: ctx.nextVector(), cqs: map[uintptr]*cq{}}
	defer func() {
		if err != nil {
			ch.destroy()
		}
	}()
	if ch.mem, err = newArena(ctx.lib, arraySize[eventOut](1)); err != nil {
		return nil, err
	}
	ch.out = &array[eventOut](ch.mem, 1)[0]
	ch.args = [3]uintptr{ch.handle, uintptr(unsafe.Pointer(&ch.out.cq)), uintptr(unsafe.Pointer(&ch.out.context))}
	fd := int(at[cCompChannel](r).fd)
	if err = ch.rd.init(ch, &ch.wr, fd); err != nil {
		return nil, err
	}
	if err = ch.wr.init(ch, &ch.rd, fd); err != nil {
		return nil, err
	}
	return ch, nil
}

// destroy gives everything back that newChannel has got.
func (ch *compChannel) destroy() error {
	err := errors.Join(ch.rd.close(), ch.wr.close())
	err = errors.Join(err, returned("ibv_destroy_comp_channel", ch.ctx.ends(ch.ctx.lib.destroyCompChannel, ch.handle)))
	if ch.mem != nil {
		ch.mem.free()
	}
	return err
}

func (ch *compChannel) WaitRead(try func() bool) error  { return ch.rd.wait(try) }
func (ch *compChannel) WaitWrite(try func() bool) error { return ch.wr.wait(try) }

func (ch *compChannel) SetReadDeadline(t time.Time) error  { return ch.rd.SetDeadline(t) }
func (ch *compChannel) SetWriteDeadline(t time.Time) error { return ch.wr.SetDeadline(t) }

func (ch *compChannel) GetEvent() (verbs.CQ, error) {
	var got *cq
	err := ch.rd.park(func(uintptr) bool {
		var err error
		got, err = ch.nextEvent()
		return got != nil || err != nil
	})
	if err != nil {
		return nil, err
	}
	if got == nil {
		return nil, errChannelGone
	}
	return got, nil
}

var errChannelGone = fmt.Errorf("%w: the device of the completion channel was removed", verbs.ErrNoDevice)

// nextEvent takes one event off the channel: nil if there is none.
func (ch *compChannel) nextEvent() (*cq, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.nextEventLocked()
}

func (ch *compChannel) nextEventLocked() (*cq, error) {
	lib := ch.ctx.lib
	for !ch.closed {
		r, errno := lib.callErrno(lib.getCQEvent, ch.args[:]...)
		if int32(r) != 0 {
			switch errno {
			case syscall.EAGAIN:
				return nil, nil
			case syscall.EINTR:
				continue
			}
			return nil, errChannelGone
		}
		if q := ch.cqs[ch.out.cq]; q != nil {
			q.countEvent()
			return q, nil
		}
		// It is being destroyed, which waits for this.
		call(lib.ackCQEvents, ch.out.cq, 1)
	}
	return nil, nil
}

// consume takes all events there are and reports whether there were any.
func (ch *compChannel) consume() (bool, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	any := false
	for {
		q, err := ch.nextEventLocked()
		if q == nil {
			return any, err
		}
		any = true
	}
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
	defer ch.mu.Unlock()
	ch.cqs[q.handle] = q
}

// remove forgets a CQ that is to be destroyed and acknowledges its events.
func (ch *compChannel) remove(q *cq) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.cqs, q.handle)
	q.ackEvents()
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
	// Nobody calls into the library for the channel any more: whoever did held the
	// lock, and the next finds it closed.
	err := ch.destroy()
	ch.ctx.users.Release()
	return err
}
