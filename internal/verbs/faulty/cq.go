package faulty

import (
	"fmt"
	"sync"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// CQ is a verbs.CQ over another, from which it takes completions that its user may not
// see yet. Those of one QP keep their order.
type CQ struct {
	verbs.CQ
	ctx *Context
	ch  *CompChannel // may be nil

	mu     sync.Mutex
	dice   *dice
	qps    map[uint32]*QP
	lanes  []lane
	held   int // in all lanes
	turn   int // the lane to begin with
	armed  bool
	eager  bool // armed for solicited completions: which those are, only the device knows
	event  bool // to be got, besides those of the device
	dead   bool
	polled time.Time // when the device was asked last
	timer  *time.Timer
	batch  [16]verbs.WC
}

// A lane holds the completions of one QP.
type lane struct {
	qpn   uint32
	queue []held
	head  int
}

// release has all that the lane holds be seen now.
func (l *lane) release() {
	for i := range l.queue[l.head:] {
		l.queue[l.head+i].due = time.Time{}
	}
}

type held struct {
	wc  verbs.WC
	due time.Time
}

func newCQ(ctx *Context, under verbs.CQ, ch *CompChannel) *CQ {
	c := &CQ{CQ: under, ctx: ctx, ch: ch, dice: ctx.d.newDice(), qps: map[uint32]*QP{}}
	if ch != nil {
		ch.add(c)
	}
	return c
}

func (c *CQ) add(q *QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.qps[q.num] = q
}

func (c *CQ) remove(q *QP) {
	c.forget(q.num)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.qps, q.num)
}

// forget drops what is held of a QP.
func (c *CQ) forget(qpn uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.lanes {
		if l := &c.lanes[i]; l.qpn == qpn {
			c.held -= len(l.queue) - l.head
			c.lanes = append(c.lanes[:i], c.lanes[i+1:]...)
			return
		}
	}
}

// Poll implements verbs.CQ.
func (c *CQ) Poll(wc []verbs.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(wc) == 0 || c.dead {
		if _, err := c.CQ.Poll(nil); err != nil || !c.dead {
			return 0, err
		}
		return 0, c.overrunError()
	}
	for left := len(wc); left > 0; { // fewer than were asked for would say that there are no more
		n, err := c.pull(min(left, len(c.batch)))
		if err != nil {
			return 0, err
		}
		if left -= n; n < len(c.batch) {
			break
		}
	}
	if c.held == 0 {
		return 0, nil
	}
	now := time.Now()
	n := c.take(wc, now)
	c.schedule(now)
	return n, nil
}

// pull takes up to n completions from the device.
func (c *CQ) pull(n int) (int, error) {
	n, err := c.CQ.Poll(c.batch[:n])
	if c.dice == nil && n == 0 || err != nil {
		return 0, err
	}
	now := time.Now()
	// What comes while nobody looks or sleeps may have been late long ago.
	late := c.armed || c.dice != nil && now.Sub(c.polled) < c.dice.late
	c.polled = now
	for i := range c.batch[:n] {
		c.hold(&c.batch[i], now, late)
	}
	return n, nil
}

// hold puts a completion into its lane, for a while.
func (c *CQ) hold(wc *verbs.WC, now time.Time, late bool) {
	due, gathered := now, false
	if q := c.qps[wc.QPN]; q != nil {
		send := c.isSend(q, wc)
		q.failed(wc, send)
		gathered = send && q.sources.records && wc.Status == verbs.WCSuccess && !c.eager
	}
	if late && !c.eager {
		due = now.Add(c.dice.delay())
	}
	l := c.lane(wc.QPN)
	if wc.Status != verbs.WCSuccess && c.dice == nil {
		l.release() // as the receives that fail for it may be seen already
	} else if n := len(l.queue); n > l.head && l.queue[n-1].due.After(due) {
		due = l.queue[n-1].due
	}
	if gathered {
		due = due.Add(gathers)
	}
	l.queue = append(l.queue, held{*wc, due})
	c.held++
}

// isSend reports whether a completion of q here is of its send queue. Its opcode counts
// only where nothing else tells.
func (c *CQ) isSend(q *QP, wc *verbs.WC) bool {
	return q.sendCQ == c && (q.recvCQ != c || !wc.Opcode.IsRecv())
}

func (c *CQ) lane(qpn uint32) *lane {
	for i := range c.lanes {
		if c.lanes[i].qpn == qpn {
			return &c.lanes[i]
		}
	}
	c.lanes = append(c.lanes, lane{qpn: qpn})
	return &c.lanes[len(c.lanes)-1]
}

// take moves what the user may see to wc.
func (c *CQ) take(wc []verbs.WC, now time.Time) (n int) {
	for range c.lanes {
		if c.turn++; c.turn >= len(c.lanes) {
			c.turn = 0
		}
		l := &c.lanes[c.turn]
		for n < len(wc) && l.head < len(l.queue) && !l.queue[l.head].due.After(now) {
			wc[n] = l.queue[l.head].wc
			l.head++
			if q := c.qps[l.qpn]; q != nil {
				send := c.isSend(q, &wc[n])
				if send && wc[n].Status == verbs.WCSuccess {
					q.slots.free()
				}
				q.completed(&wc[n], send)
			}
			n++
		}
		if l.head > len(l.queue)/2 { // which allocates nothing in the long run
			l.queue = l.queue[:copy(l.queue, l.queue[l.head:])]
			l.head = 0
		}
	}
	c.held -= n
	return n
}

// schedule sees that the sleeper is woken when the next held completion may be seen that
// may not be seen at now, when the user has looked or before he looks again.
func (c *CQ) schedule(now time.Time) {
	if !c.armed || c.held == 0 || c.ch == nil {
		return
	}
	var next time.Time
	for i := range c.lanes {
		l := &c.lanes[i]
		for _, h := range l.queue[l.head:] {
			if h.due.After(now) {
				if next.IsZero() || h.due.Before(next) {
					next = h.due
				}
				break
			}
		}
	}
	if next.IsZero() {
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(next.Sub(now), c.fire)
	} else {
		c.timer.Reset(next.Sub(now))
	}
}

// fire is the event of an armed CQ.
func (c *CQ) fire() {
	c.mu.Lock()
	armed := c.armed
	if armed {
		c.armed, c.event = false, true
	}
	c.mu.Unlock()
	if armed && c.ch != nil {
		c.ch.wake()
	}
}

// ReqNotify implements verbs.CQ.
func (c *CQ) ReqNotify(solicitedOnly bool) error {
	if err := c.ctx.d.ask(ReqNotify); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return c.overrunError()
	}
	if err := c.CQ.ReqNotify(solicitedOnly); err != nil {
		return err
	}
	c.armed, c.eager = true, solicitedOnly
	if solicitedOnly {
		for i := range c.lanes {
			c.lanes[i].release()
		}
	}
	c.schedule(time.Now())
	return nil
}

// takeEvent returns whether there is an event that the device knows nothing of.
func (c *CQ) takeEvent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	event := c.event
	c.event = false
	return event
}

// gotEvent takes in an event of the device; false if it was told before.
func (c *CQ) gotEvent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	armed := c.armed
	c.armed = false
	return armed
}

// inject adds a completion behind all there are.
func (c *CQ) inject(wc verbs.WC) {
	c.mu.Lock()
	for {
		if n, err := c.pull(len(c.batch)); n == 0 || err != nil {
			break
		}
	}
	c.hold(&wc, time.Now(), true)
	c.mu.Unlock()
	c.fire()
}

// Overrun has the CQ lose what it holds and take no more, as one does that was too small.
func (c *CQ) Overrun() {
	c.mu.Lock()
	c.dead, c.event = true, true
	c.lanes, c.held = nil, 0
	var qps []*QP
	for _, q := range c.qps {
		qps = append(qps, q)
	}
	c.mu.Unlock()
	c.ctx.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c})
	if c.ch != nil {
		c.ch.wake()
	}
	for _, q := range qps {
		q.toError()
		c.ctx.raise(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q})
	}
}

func (c *CQ) overrunError() error {
	return fmt.Errorf("%w: by request", verbs.ErrCQOverrun)
}

// Close implements verbs.CQ.
func (c *CQ) Close() error {
	if err := c.ctx.d.gone(kindCQ, c.CQ.Close()); err != nil {
		return err
	}
	c.mu.Lock()
	c.lanes, c.held, c.armed = nil, 0, false
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if c.ch != nil {
		c.ch.remove(c)
	}
	c.ctx.mu.Lock()
	delete(c.ctx.cqs, c.CQ)
	c.ctx.mu.Unlock()
	return nil
}
