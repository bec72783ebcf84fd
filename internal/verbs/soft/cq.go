//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

const maxCQE = 1 << 20

// cq is verbs.CQ. Receive completions are taken straight from the inboxes of the
// connected QPs when the CQ is polled; what completes on this side (sends, flushed
// requests) waits in a ring, which comes first.
type cq struct {
	ctx     *devContext
	channel *compChannel // may be nil
	size    int

	mu    sync.Mutex
	ring  []cqe
	head  uint32
	tail  uint32
	rx    []*qp // QPs whose inboxes are consumed here
	turn  int   // the one to begin with
	armed uint32
	event bool // the channel was signalled and nobody has got the event
	dead  bool // overrun
	// slow means that polling needs care: the CQ is closed or dead, or receives
	// could overrun it, and everything is taken into the ring first, where that
	// is noticed.
	slow   bool
	failed []*qp // QPs to move to ERR once the lock is released

	users  []*qp // QPs that complete here
	closed bool
	again  *time.Timer // runs lookAgain; nil until it is needed
	_      [24]byte    // as of an Inbox
}

// cqe is a completion in the ring. Polling it frees the slots of sq up to idx, or one of rq.
type cqe struct {
	wc  verbs.WC
	sq  *sendQueue
	rq  *recvQueue
	idx uint32
}

func newCQ(ctx *devContext, size int, ch *compChannel) (*cq, error) {
	if size < 1 || size > maxCQE {
		return nil, fmt.Errorf("%w: CQ of %d entries, where 1 to %d are possible", verbs.ErrInvalid, size, maxCQE)
	}
	c := &cq{ctx: ctx, channel: ch, size: size}
	if ch != nil {
		if err := ch.add(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *cq) Cap() int { return c.size }

func (c *cq) Poll(wc []verbs.WC) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	if c.slow {
		return c.pollSlow(wc)
	}
	n := 0
	if c.head != c.tail {
		n = c.take(wc)
	}
	if len(c.rx) == 1 { // as of a lane
		n += c.rx[0].receive(wc[n:])
	} else {
		n += c.receive(wc[n:])
	}
	if len(c.failed) != 0 {
		c.failLocked()
		return n, nil
	}
	c.mu.Unlock()
	return n, nil
}

// receive takes what the QPs have received in turn.
func (c *cq) receive(wc []verbs.WC) (n int) {
	for i := len(c.rx); i > 0 && n < len(wc); i-- {
		if c.turn >= len(c.rx) {
			c.turn = 0
		}
		n += c.rx[c.turn].receive(wc[n:])
		c.turn++
	}
	return n
}

// pollSlow is Poll of a CQ that can overrun, or has, or is closed.
func (c *cq) pollSlow(wc []verbs.WC) (int, error) {
	if c.closed {
		c.mu.Unlock()
		return 0, verbs.ErrClosed
	}
	for _, q := range c.rx {
		c.takePublished(q, false)
	}
	if c.dead {
		c.mu.Unlock()
		return 0, c.overrunError()
	}
	n := c.take(wc)
	c.failLocked()
	return n, nil
}

// take moves completions from the ring into wc.
func (c *cq) take(wc []verbs.WC) int {
	n := 0
	mask := uint32(len(c.ring) - 1)
	for n < len(wc) && c.head != c.tail {
		e := &c.ring[c.head&mask]
		wc[n] = e.wc
		if e.sq != nil {
			if int32(e.idx-e.sq.freed.Load()) > 0 { // or the QP was reset since
				e.sq.freed.Store(e.idx)
			}
			e.sq = nil
		}
		if e.rq != nil {
			e.rq.held.Add(-1)
			e.rq = nil
		}
		c.head++
		n++
	}
	return n
}

// takePublished takes everything that q's peer has published into the ring, and signals
// the channel where nobody is polling. It is bounded: what a peer goes on to publish is
// left for the next time.
func (c *cq) takePublished(q *qp, signal bool) {
	var wc [1]verbs.WC
	for n := 0; n <= maxQueue && !c.dead && q.takeReceived(wc[:]) == 1; n++ {
		c.pushTaken(&wc[0], q)
		if signal {
			c.notify(q.solicited || wc[0].Status != verbs.WCSuccess)
		}
	}
}

// push adds a completion of this side; sq is the send queue it frees up to idx.
func (c *cq) push(wc *verbs.WC, sq *sendQueue, idx uint32) {
	c.mu.Lock()
	if e := c.pushLocked(wc); e != nil {
		e.sq, e.idx = sq, idx
	}
	c.notify(wc.Status != verbs.WCSuccess)
	c.mu.Unlock()
}

// pushTaken adds the completion of a receive that q has taken. One of an SRQ is held since then: others may post to
// that at any time.
func (c *cq) pushTaken(wc *verbs.WC, q *qp) {
	if q.srq == nil {
		q.rq.held.Add(1)
	}
	if e := c.pushLocked(wc); e != nil {
		e.rq = q.rq
	} else {
		q.rq.held.Add(-1)
	}
}

// pushLocked adds a completion, and returns its place; nil if there is none.
func (c *cq) pushLocked(wc *verbs.WC) *cqe {
	if c.dead {
		return nil
	}
	n := c.tail - c.head
	if int(n) == c.size {
		c.overrun()
		return nil
	}
	if int(n) == len(c.ring) {
		c.grow()
	}
	e := &c.ring[c.tail&uint32(len(c.ring)-1)]
	*e = cqe{wc: *wc}
	c.tail++
	return e
}

// grow doubles the ring, which starts small: most CQs never hold many at once.
func (c *cq) grow() {
	limit := 1 << bits.Len(uint(c.size-1))
	ring := make([]cqe, min(max(8, 2*len(c.ring)), max(limit, 1)))
	n := c.tail - c.head
	for i := range n {
		ring[i] = c.ring[(c.head+i)&uint32(len(c.ring)-1)]
	}
	c.ring, c.head, c.tail = ring, 0, n
}

// overrun kills the CQ and, from another goroutine for the order of the locks,
// its QPs.
func (c *cq) overrun() {
	c.dead, c.slow = true, true
	c.signal()
	c.ctx.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c})
	qps := slices.Clone(c.users)
	go func() {
		for _, q := range qps {
			q.cqDied()
		}
	}()
}

// failLocked unlocks the CQ and moves the QPs that failed in it, if any, to ERR.
func (c *cq) failLocked() {
	failed := c.failed
	c.failed = nil
	c.mu.Unlock()
	for _, q := range failed {
		q.receiveFailed()
	}
}

// notify signals the channel if the CQ is armed for such a completion.
func (c *cq) notify(solicited bool) {
	if c.armed == shm.ArmedAny || c.armed == shm.ArmedSolicited && solicited {
		c.armed = shm.ArmedNot
		c.signal()
	}
}

// signal makes an event of the CQ.
func (c *cq) signal() {
	c.event = true
	if c.channel != nil {
		c.channel.signal()
	}
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	v := uint32(shm.ArmedAny)
	if solicitedOnly {
		v = shm.ArmedSolicited
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return verbs.ErrClosed
	case c.dead:
		return c.overrunError()
	}
	was := c.armed
	if was == shm.ArmedAny && !c.fired() {
		v = shm.ArmedAny // armed both ways, any completion counts (IBA 11.4.2.2)
	}
	c.armed = v
	own, others := false, false // may be publishing without a fence
	for _, q := range c.rx {
		if q.stopped {
			continue // its peer has nothing more to tell
		}
		own = own || q.in.Unfenced && q.in.Local
		others = others || q.in.Unfenced && !q.in.Local
		q.in.Unfenced, q.in.Streak = false, 0
		if atomic.SwapUint32(q.in.Armed, v) == shm.ArmedNot && was != shm.ArmedNot {
			c.event = true // a peer has signalled the channel: it stays until it is got
		}
	}
	return c.fence(own, others)
}

// fence has the processors of senders execute a fence. Where it may miss one, the CQ looks again.
func (c *cq) fence(own, others bool) error {
	var err error
	if own {
		err = shm.FenceOwn()
	}
	if others && err == nil {
		err = shm.FenceAll()
	}
	if others || err != nil {
		c.lookAgainLater()
	}
	return err
}

// publishTime is more than a published entry takes to be seen by all processors. They hold back
// stores for some loads of a cache line, and none over an interrupt.
const publishTime = time.Millisecond

// lookAgainLater has the CQ look once more for what has woken nobody.
func (c *cq) lookAgainLater() {
	if c.channel == nil {
		return
	}
	if c.again == nil {
		c.again = time.AfterFunc(publishTime, c.lookAgain)
	} else {
		c.again.Reset(publishTime)
	}
}

// lookAgain takes what was published by a peer that did not see that the CQ was armed.
func (c *cq) lookAgain() {
	c.mu.Lock()
	c.settleForOthers()
	if !c.closed && c.armed != shm.ArmedNot {
		for _, q := range c.rx {
			c.takePublished(q, true)
		}
	}
	c.failLocked()
}

// unfencedStreak is how many entries a receiver takes without arming its CQ before it is
// taken to be one that stays awake.
const unfencedStreak = 64

// countStreak records that n entries were taken from in, and lets the sender do without fences once
// there have been enough of them. It never does so while the CQ is armed.
func (c *cq) countStreak(in *shm.Inbox, n uint32) {
	if in.Streak += n; in.Streak < unfencedStreak || !shm.RemoteFences.Load() {
		return
	}
	c.settleForOthers()
	if c.armed == shm.ArmedNot {
		in.Unfenced = true
		atomic.StoreUint32(in.Armed, shm.ArmedUnfenced)
	}
}

func (c *cq) overrunError() error {
	return fmt.Errorf("%w: more than %d completions were waiting", verbs.ErrCQOverrun, c.size)
}

// fired reports whether a peer has signalled the channel since the CQ was armed,
// which it has if it cleared the flag in its inbox. Whoever does so without a
// message only causes one event too many.
func (c *cq) fired() bool {
	if c.armed == shm.ArmedNot {
		return false
	}
	for _, q := range c.rx {
		if !q.stopped && atomic.LoadUint32(q.in.Armed) == shm.ArmedNot {
			return true
		}
	}
	return false
}

// takeEvent reports whether the CQ has signalled the channel, once, and is then
// not armed any more.
func (c *cq) takeEvent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	event := c.event
	c.event = false
	return event
}

// settle takes note of an event that a peer has signalled: the CQ is not armed any more.
func (c *cq) settle() {
	if !c.fired() {
		return
	}
	c.event = true
	c.armed = shm.ArmedNot
	for _, q := range c.rx {
		atomic.StoreUint32(q.in.Armed, shm.ArmedNot)
	}
}

// settleForOthers is settle where others may sleep. They need not have been woken: a peer can say that it has, and
// once the CQ is not armed any more no other peer wakes them.
func (c *cq) settleForOthers() {
	if c.fired() {
		c.settle()
		c.signal()
	}
}

// attach makes the CQ consume the inbox of q, which p fills.
func (c *cq) attach(q *qp, p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.src, q.in.Local = p.qpn, p.local
	c.consume(q)
	atomic.SwapUint32(q.in.Armed, c.armed) // a fence, as in shm.Outbox
	if c.armed != shm.ArmedNot {
		// What the peer wrote before it saw the flag has woken nobody.
		c.takePublished(q, true)
	}
}

// consume has Poll look at q.
func (c *cq) consume(q *qp) {
	if !slices.Contains(c.rx, q) {
		c.rx = append(c.rx, q)
	}
}

// hold adds a QP that completes here; release takes it away, if it is there.
func (c *cq) hold(q *qp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return verbs.ErrClosed
	case c.dead:
		return verbs.ErrCQOverrun
	}
	c.users = append(c.users, q)
	c.measure()
	return nil
}

func (c *cq) release(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rx = without(c.rx, q)
	c.users = without(c.users, q)
	c.measure()
}

// measure finds out whether the requests of all QPs together fit into the CQ.
func (c *cq) measure() {
	total := 0
	for _, q := range c.users {
		if q.sendCQ == c {
			total += q.cap.MaxSendWR
		}
		if q.recvCQ == c {
			total += q.rq.max
		}
	}
	c.slow = c.dead || c.closed || total > c.size
}

func (c *cq) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return verbs.ErrClosed
	}
	if n := len(c.users); n > 0 {
		c.mu.Unlock()
		return fmt.Errorf("%w: %d QPs use the CQ", verbs.ErrBusy, n)
	}
	c.closed = true
	c.slow = true
	for n := 1; n > 0; { // an SRQ goes on without them
		var wc [16]verbs.WC
		n = c.take(wc[:])
	}
	if c.again != nil {
		c.again.Stop()
	}
	c.mu.Unlock()
	if c.channel != nil {
		c.channel.remove(c)
	}
	c.ctx.async.Forget(func(ev verbs.AsyncEvent) bool { return ev.CQ == verbs.CQ(c) })
	c.ctx.users.Release()
	return nil
}
