//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A kernelChannel is an ibv_comp_channel with the CQs whose events come there.
type kernelChannel struct {
	ctx    *devContext
	handle uintptr // struct ibv_comp_channel
	vector uint32  // which of the device's interrupts tells of completions

	mu     sync.Mutex
	cqs    map[uintptr]*cq // by their C structs
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

var errChannelGone = fmt.Errorf("%w: the device of the completion channel was removed", verbs.ErrNoDevice)

func newKernelChannel(ctx *devContext, vector uint32) (_ *kernelChannel, err error) {
	r, errno := ctx.makes(ctx.lib.createCompChannel, ctx.handle)
	if r == 0 {
		return nil, failed("ibv_create_comp_channel", errno)
	}
	k := &kernelChannel{ctx: ctx, handle: r, vector: vector, cqs: map[uintptr]*cq{}}
	if k.mem, err = newArena(ctx.lib, arraySize[eventOut](1)); err != nil {
		return nil, errors.Join(err, k.destroy())
	}
	k.out = &array[eventOut](k.mem, 1)[0]
	k.args = [3]uintptr{r, uintptr(unsafe.Pointer(&k.out.cq)), uintptr(unsafe.Pointer(&k.out.context))}
	return k, nil
}

func (k *kernelChannel) fd() int { return int(at[cCompChannel](k.handle).fd) }

// destroy gives back what newKernelChannel has got. Who had begun to take an event is waited for, and the
// next finds none.
func (k *kernelChannel) destroy() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	err := returned("ibv_destroy_comp_channel", k.ctx.ends(k.ctx.lib.destroyCompChannel, k.handle))
	if k.mem != nil {
		k.mem.free()
	}
	return err
}

// take takes an event and has its CQ's channel count it. It returns nil if there is none.
func (k *kernelChannel) take() (*compChannel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	lib := k.ctx.lib
	for !k.closed {
		r, errno := lib.callErrno(lib.getCQEvent, k.args[:]...)
		if int32(r) != 0 {
			switch errno {
			case syscall.EAGAIN:
				return nil, nil
			case syscall.EINTR:
				continue
			}
			return nil, errChannelGone
		}
		if q := k.cqs[k.out.cq]; q != nil {
			q.countEvent()
			q.channel.raise(q)
			return q.channel, nil
		}
		// It is being destroyed, which waits for this.
		call(lib.ackCQEvents, k.out.cq, 1)
	}
	return nil, nil
}

// add makes the events of a CQ known.
func (k *kernelChannel) add(q *cq) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cqs[q.handle] = q
}

// remove forgets a CQ that is to be destroyed and acknowledges its events.
func (k *kernelChannel) remove(q *cq) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.cqs, q.handle)
	q.ackEvents()
}
