//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// maxInline is the most inline data of a send request: all of it, since a post
// consumes its source anyway.
const maxInline = 1 << 30

// qp is verbs.QP.
type qp struct {
	ctx      *devContext
	pd       *pd
	num      uint32
	typ      verbs.QPType
	sigAll   bool
	ops      verbs.SendOps
	cap      verbs.QPCap
	userData any
	sendCQ   *cq
	recvCQ   *cq
	srq      *srq // nil: rq is the QP's own
	rq       *recvQueue

	state atomic.Uint32 // a verbs.QPState; written under mu

	mu      sync.Mutex
	closed  bool
	wake    bool // the peer must be woken once mu is released
	alone   int  // calls that wait for posts which copy without mu: see lockAlone
	sq      sendQueue
	peer    *peer // what is mapped of the other end; nil until connected
	link    *link
	entries uint64         // published
	stats   driver.QPStats // without wake-ups: those suppressed are the entries that have woken nobody
	wakeups atomic.Uint64  // sent; written under mu

	// What is seldom used lies between what senders and what receivers write, which
	// run on different processors: here at least 128 bytes.
	copied  sync.Cond // no post copies without mu any more
	attr    verbs.QPAttr
	timer   *time.Timer // runs retry, for requests that wait
	dialing *bringUp    // manual connection in progress
	offered *offered

	datagram []byte // of a UD QP: the one being sent

	// recvCQ.mu guards what follows, and mu as well where in changes.
	in        *shm.Inbox // nil in RESET, and for UD
	stopped   bool       // the inbox is not consumed any more
	flushing  bool       // receives that were posted before ERR are still to be flushed
	talked    bool       // a message has arrived
	solicited bool       // one of the last received was solicited
	src       uint32     // the peer's QPN
	cur       partial
	failure   recvFailure
	qkey      uint32 // attr.QKey
}

func newQP(p *pd, attr *verbs.QPInitAttr) (*qp, error) {
	if attr == nil {
		return nil, fmt.Errorf("%w: no QP attributes", verbs.ErrInvalid)
	}
	if err := p.ctx.dev.checkType(attr); err != nil {
		return nil, err
	}
	sendCQ, ok1 := attr.SendCQ.(*cq)
	recvCQ, ok2 := attr.RecvCQ.(*cq)
	if !ok1 || !ok2 || sendCQ == nil || recvCQ == nil || sendCQ.ctx != p.ctx || recvCQ.ctx != p.ctx {
		return nil, fmt.Errorf("%w: a QP needs a send CQ and a receive CQ of its context", verbs.ErrInvalid)
	}
	c := attr.Cap
	if c.MaxSendWR < 0 || c.MaxSendWR > maxQueue || c.MaxRecvWR < 0 || c.MaxRecvWR > maxQueue ||
		c.MaxSendSGE < 0 || c.MaxSendSGE > maxSGE || c.MaxRecvSGE < 0 || c.MaxRecvSGE > maxSGE ||
		c.MaxInlineData < 0 || c.MaxInlineData > maxInline {
		return nil, fmt.Errorf("%w: capacities %+v, where up to %d requests of %d SGEs and %d bytes inline are possible",
			verbs.ErrInvalid, c, maxQueue, maxSGE, maxInline)
	}
	shm.WantRemoteFences()
	q := &qp{ctx: p.ctx, pd: p, typ: attr.Type, sigAll: attr.SigAll, ops: attr.SendOps, cap: c, userData: attr.UserData, sendCQ: sendCQ, recvCQ: recvCQ}
	q.copied.L = &q.mu
	q.sq.max, q.sq.maxSGE, q.sq.maxInline = c.MaxSendWR, c.MaxSendSGE, c.MaxInlineData
	if q.typ == verbs.QPTypeUD {
		q.datagram, q.stopped = make([]byte, maxDatagram), true
	}
	if attr.SRQ != nil {
		s, ok := attr.SRQ.(*srq)
		if !ok || s.pd != p {
			return nil, fmt.Errorf("%w: an SRQ and its QPs share a PD", verbs.ErrInvalid)
		}
		q.srq, q.rq = s, s.rq
		q.cap.MaxRecvWR, q.cap.MaxRecvSGE = 0, 0
	} else {
		q.rq = newRecvQueue(p, c.MaxRecvWR, c.MaxRecvSGE)
	}
	if err := q.hold(); err != nil {
		return nil, err
	}
	attr.Cap = q.cap
	return q, nil
}

// hold takes what the QP needs of others, all or nothing.
func (q *qp) hold() (err error) {
	if q.num, err = q.ctx.qpns.take(q.ctx.dev, q); err != nil {
		return err
	}
	if err = q.sendCQ.hold(q); err == nil && q.recvCQ != q.sendCQ {
		err = q.recvCQ.hold(q)
	}
	if err == nil && q.srq != nil {
		err = q.srq.users.Hold()
	}
	if err != nil {
		q.release()
	}
	return err
}

// release gives back what the QP has of its CQs, and its number.
func (q *qp) release() {
	q.sendCQ.release(q)
	q.recvCQ.release(q)
	q.ctx.qpns.give(q.num)
}

func (q *qp) QPN() uint32          { return q.num }
func (q *qp) PD() verbs.PD         { return q.pd }
func (q *qp) Type() verbs.QPType   { return q.typ }
func (q *qp) UserData() any        { return q.userData }
func (q *qp) State() verbs.QPState { return verbs.QPState(q.state.Load()) }

func (q *qp) Query() (verbs.QPAttr, verbs.QPInitAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return verbs.QPAttr{}, verbs.QPInitAttr{}, verbs.ErrClosed
	}
	attr := q.attr
	attr.State = q.State()
	attr.Cap = q.cap
	init := verbs.QPInitAttr{
		Type: q.Type(), SendCQ: q.sendCQ, RecvCQ: q.recvCQ, Cap: q.cap, SendOps: q.ops, SigAll: q.sigAll, UserData: q.userData,
	}
	if q.srq != nil {
		init.SRQ = q.srq
	}
	return attr, init, nil
}

// QPStats implements driver.QPStatter.
func (q *qp) QPStats() driver.QPStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.WakeupsSent = q.wakeups.Load()
	s.WakeupsSuppressed = q.entries - s.WakeupsSent
	return s
}

// WakeupsSent implements driver.QPStatter.
func (q *qp) WakeupsSent() uint64 { return q.wakeups.Load() }

func (q *qp) PostRecv(wrs []verbs.RecvWR) (n int, err error) {
	if q.srq != nil {
		return 0, fmt.Errorf("%w: receives of a QP with an SRQ are posted to the SRQ", verbs.ErrInvalid)
	}
	if st := q.State(); st == verbs.QPReset {
		return 0, q.recvStateError()
	}
	r := q.rq
	r.mu.Lock()
	if !r.hasRoom(len(wrs)) { // as far as is known
		r.mu.Unlock() // for the order of the locks
		q.recvCQ.mu.Lock()
		r.mu.Lock()
		if r.release(); q.cur.on {
			r.headSeen-- // its completion is to come
		}
		q.recvCQ.mu.Unlock()
	}
	if r.flush {
		r.mu.Unlock()
		return q.flushRecv(wrs)
	}
	if !r.open {
		r.mu.Unlock()
		return 0, q.recvStateError()
	}
	for n < len(wrs) {
		if err = r.post(&wrs[n]); err != nil {
			break
		}
		n++
	}
	r.publish()
	r.mu.Unlock()
	return n, err
}

// flushRecv completes receives that are posted to a QP in ERR.
func (q *qp) flushRecv(wrs []verbs.RecvWR) (n int, err error) {
	c := q.recvCQ
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.flushing {
		c.takePublished(q, false) // those posted before come first
	}
	for n < len(wrs) {
		if int(q.rq.held.Load()) >= q.rq.max {
			err = verbs.ErrQueueFull
			break
		}
		wc := q.flushedWC(wrs[n].WRID)
		c.pushTaken(&wc, q)
		n++
	}
	if n > 0 {
		c.notify(true)
	}
	return n, err
}

func (q *qp) recvStateError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stateError("receive")
}

// stateError is that of a post which the state of the QP does not allow. mu is held.
func (q *qp) stateError(what string) error {
	if q.closed {
		return verbs.ErrClosed
	}
	return fmt.Errorf("%w: post of a %s to a QP in %v", verbs.ErrState, what, q.State())
}

// unlock releases mu and then wakes the peer if that is due.
func (q *qp) unlock() {
	if !q.wake {
		q.mu.Unlock()
		return
	}
	q.wake = false
	door, l := q.peer.door, q.link
	door.hold()
	q.mu.Unlock()
	if !door.ring() {
		// Somebody has filled the peer's eventfd.
		l.tell(msgWake)
	}
	door.release()
}

func (q *qp) Close() error {
	q.lockAlone()
	if q.closed {
		q.mu.Unlock()
		return verbs.ErrClosed
	}
	q.closed = true
	l := q.link
	q.reset()
	q.mu.Unlock()
	if l != nil {
		l.close(nil)
	}
	if q.srq != nil {
		q.srq.release(q)
	}
	q.release()
	q.ctx.async.Forget(func(ev verbs.AsyncEvent) bool { return ev.QP == verbs.QP(q) })
	q.pd.mu.Lock()
	q.pd.qps = without(q.pd.qps, q)
	q.pd.mu.Unlock()
	q.pd.users.Release()
	return nil
}
