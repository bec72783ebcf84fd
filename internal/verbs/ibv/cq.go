//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// pollBatch is how many completions one ibv_poll_cq takes at most.
const pollBatch = 32

// ackBatch is how many events are acknowledged at once: that takes a mutex of the
// library's (ibv_ack_cq_events(3)).
const ackBatch = 64

// cq is verbs.CQ.
type cq struct {
	ctx     *devContext
	channel *compChannel // may be nil
	handle  uintptr      // struct ibv_cq
	size    int
	pollFn  uintptr
	armFn   uintptr
	dead    atomic.Bool // completions were lost
	unacked uint32      // guarded by the kernelChannel's lock
	raised  int         // events that GetEvent has not returned, guarded by the channel's lock

	mu     sync.Mutex
	args   [3]uintptr // of ibv_poll_cq
	arm    [2]uintptr // of ibv_req_notify_cq
	wcs    []cWC
	flags  verbs.WCFlags // those that mean something for the QPs
	mem    *arena
	closed bool

	usersMu sync.Mutex
	users   []*qp // QPs that complete here
}

func newCQ(ctx *devContext, cqe int, ch *compChannel) (*cq, error) {
	if most := ctx.limits.attr.MaxCQE; cqe < 1 || cqe > most {
		return nil, fmt.Errorf("%w: CQ of %d entries, where 1 to %d are possible", verbs.ErrInvalid, cqe, most)
	}
	mem, err := newArena(ctx.lib, arraySize[cWC](pollBatch))
	if err != nil {
		return nil, err
	}
	var channel, vector uintptr
	if ch != nil {
		if err := ch.hold(); err != nil {
			mem.free()
			return nil, err
		}
		channel, vector = ch.kernel.handle, uintptr(ch.kernel.vector)
	}
	r, errno := ctx.makes(ctx.lib.createCQ, ctx.handle, uintptr(cqe), 0, channel, vector)
	if r == 0 {
		mem.free()
		if ch != nil {
			ch.release()
		}
		return nil, fmt.Errorf("CQ of %d entries: %w", cqe, failed("ibv_create_cq", errno))
	}
	c := &cq{
		ctx: ctx, channel: ch, handle: r, size: int(at[cCQ](r).cqe), mem: mem,
		flags:  verbs.WCWithImm | verbs.WCWithInv,
		pollFn: ctx.ops().pollCQ, armFn: ctx.ops().reqNotifyCQ,
	}
	c.wcs = array[cWC](mem, pollBatch)
	c.args = [3]uintptr{r, 0, uintptr(unsafe.Pointer(&c.wcs[0]))}
	c.arm[0] = r
	ctx.addCQ(c)
	if ch != nil {
		ch.add(c)
	}
	return c, nil
}

func (c *cq) Cap() int { return c.size }

func (c *cq) Poll(wc []verbs.WC) (int, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, verbs.ErrClosed
	}
	if c.dead.Load() {
		c.mu.Unlock()
		return 0, fmt.Errorf("%w: more than %d completions were waiting", verbs.ErrCQOverrun, c.size)
	}
	n := 0
	for n < len(wc) {
		want := min(len(wc)-n, pollBatch)
		c.args[1] = uintptr(want)
		r, _, _ := purego.SyscallN(c.pollFn, c.args[:]...)
		got := int(int32(r))
		if got < 0 {
			c.mu.Unlock()
			return n, fmt.Errorf("ibv_poll_cq: %w", verbs.ErrCQOverrun)
		}
		for i := range got {
			w := &wc[n+i]
			c.wcs[i].into(w, c.flags, c.ctx.limits.withInv)
			if w.Status != verbs.WCSuccess {
				c.noteFailure(w.QPN)
			}
		}
		n += got
		if got < want {
			break
		}
	}
	c.mu.Unlock()
	return n, nil
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return verbs.ErrClosed
	}
	if c.dead.Load() {
		return verbs.ErrCQOverrun
	}
	c.arm[1] = 0
	if solicitedOnly {
		c.arm[1] = 1
	}
	r, _, _ := purego.SyscallN(c.armFn, c.arm[:]...)
	return returned("ibv_req_notify_cq", int32(r))
}

// overrun is called when the device says that completions were lost. What depends
// on them is lost, too: the QPs go to ERR.
func (c *cq) overrun() {
	if c.dead.Swap(true) {
		return
	}
	c.usersMu.Lock()
	users := slices.Clone(c.users)
	c.usersMu.Unlock()
	attr := verbs.QPAttr{State: verbs.QPErr}
	for _, q := range users {
		_ = q.Modify(&attr, verbs.QPMaskState) // it may be closed by now
	}
	if c.channel != nil {
		c.channel.wake() // what is flushed here raises no event any more
	}
}

// hold adds a QP that completes here; release takes it away.
func (c *cq) hold(q *qp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return verbs.ErrClosed
	}
	if c.dead.Load() {
		return verbs.ErrCQOverrun
	}
	c.usersMu.Lock()
	defer c.usersMu.Unlock()
	c.users = append(c.users, q)
	if q.init.Type == verbs.QPTypeUD {
		c.flags |= verbs.WCGRH
	}
	return nil
}

// noteFailure tells a QP that a request of it has failed.
func (c *cq) noteFailure(qpn uint32) {
	c.usersMu.Lock()
	defer c.usersMu.Unlock()
	for _, q := range c.users {
		if q.QPN() == qpn {
			q.failed.Store(true)
		}
	}
}

func (c *cq) release(q *qp) {
	c.usersMu.Lock()
	defer c.usersMu.Unlock()
	if i := slices.Index(c.users, q); i >= 0 {
		c.users = slices.Delete(c.users, i, i+1)
	}
}

// countEvent counts an event that was taken off the kernelChannel, whose lock is held.
func (c *cq) countEvent() {
	if c.unacked++; c.unacked >= ackBatch {
		c.ackEvents()
	}
}

// ackEvents acknowledges what was counted; the kernelChannel's lock is held.
func (c *cq) ackEvents() {
	if c.unacked > 0 {
		call(c.ctx.lib.ackCQEvents, c.handle, uintptr(c.unacked))
		c.unacked = 0
	}
}

func (c *cq) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return verbs.ErrClosed
	}
	c.usersMu.Lock()
	n := len(c.users)
	c.usersMu.Unlock()
	if n > 0 {
		return fmt.Errorf("%w: %d QPs use the CQ", verbs.ErrBusy, n)
	}
	c.closed = true
	c.ctx.forgetCQ(c)
	if c.channel != nil {
		c.channel.remove(c)
	}
	err := returned("ibv_destroy_cq", c.ctx.ends(c.ctx.lib.destroyCQ, c.handle))
	if c.channel != nil {
		c.channel.release()
	}
	c.mem.free()
	c.ctx.users.Release()
	return err
}
