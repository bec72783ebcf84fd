package faulty

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// QP is a verbs.QP over another. Its send queue is as long as was asked for, and what it
// holds is free when the user has polled for it, which is later than below.
type QP struct {
	verbs.QP
	pd             *pd
	sendCQ, recvCQ *CQ
	srq            *srq
	num            uint32

	posting    sync.Mutex     // before the locks of CQs
	nextStatus verbs.WCStatus // of the next request; guarded by posting
	slots      slots
	sources    sources

	// What the next receive to fail fails with; 0 leaves that to the device.
	recvStatus atomic.Uint32
}

func (q *QP) open() {
	q.num = q.QP.QPN()
	if _, init, err := q.QP.Query(); err == nil {
		q.slots.cap = uint64(init.Cap.MaxSendWR)
		q.slots.all = init.SigAll
	}
	c := q.pd.ctx
	if plan := c.d.plan; plan.Asynchronous {
		q.sources.init(q.slots.all, plan.Remote && c.dev.Transport() == verbs.TransportIWARP)
	}
	c.mu.Lock()
	c.qps[q.QP] = q
	c.mu.Unlock()
	q.sendCQ.add(q)
	q.recvCQ.add(q)
}

// PD implements verbs.QP.
func (q *QP) PD() verbs.PD { return q.pd }

// Query implements verbs.QP.
func (q *QP) Query() (verbs.QPAttr, verbs.QPInitAttr, error) {
	attr, init, err := q.QP.Query()
	if err == nil {
		init.SendCQ, init.RecvCQ = q.sendCQ, q.recvCQ
		if q.srq != nil {
			init.SRQ = q.srq
		}
	}
	return attr, init, err
}

// AskMR implements driver.MRAsker.
func (q *QP) AskMR(rkey uint32, got func(known bool)) (asked bool) {
	a, ok := q.QP.(driver.MRAsker)
	return ok && a.AskMR(rkey, got)
}

// QPStats implements driver.QPStatter.
func (q *QP) QPStats() driver.QPStats {
	if s, ok := q.QP.(driver.QPStatter); ok {
		return s.QPStats()
	}
	return driver.QPStats{}
}

// WakeupsSent implements driver.QPStatter.
func (q *QP) WakeupsSent() uint64 {
	if s, ok := q.QP.(driver.QPStatter); ok {
		return s.WakeupsSent()
	}
	return 0
}

// Modify implements verbs.QP.
func (q *QP) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.posting.Lock()
	defer q.posting.Unlock()
	err := q.QP.Modify(attr, mask)
	if err == nil && mask&verbs.QPMaskState != 0 && (attr.State == verbs.QPErr || attr.State == verbs.QPReset) {
		q.sources.drop()
	}
	if err == nil && mask&verbs.QPMaskState != 0 && attr.State == verbs.QPReset {
		q.slots.reset()
		q.sendCQ.forget(q.num)
		q.recvCQ.forget(q.num)
	}
	return err
}

// PostSend implements verbs.QP.
func (q *QP) PostSend(wrs []verbs.SendWR) (int, error) {
	wrs = below(wrs)
	q.posting.Lock()
	defer q.posting.Unlock()
	n, short := len(wrs), error(nil)
	if q.pd.ctx.d.acquire.Load() != nil || q.pd.ctx.d.removed.Load() {
		for n = 0; n < len(wrs); n++ {
			if short = q.pd.ctx.d.ask(PostSend); short != nil {
				break
			}
		}
	}
	if q.nextStatus != verbs.WCSuccess && n > 0 {
		q.failNext(&wrs[0])
		rest, err := q.QP.PostSend(wrs[1:n])
		return rest + 1, firstOf(err, short)
	}
	took, err := q.post(wrs[:n])
	return took, firstOf(err, short)
}

// below is the requests as the device below knows the MRs of binds.
func below(wrs []verbs.SendWR) []verbs.SendWR {
	if !slices.ContainsFunc(wrs, func(wr verbs.SendWR) bool { return wr.Bind != nil }) {
		return wrs
	}
	wrs = slices.Clone(wrs)
	for i := range wrs {
		if b := wrs[i].Bind; b != nil {
			if m, ok := b.MR.(*mr); ok {
				bind := *b
				bind.MR = m.MR
				wrs[i].Bind = &bind
			}
		}
	}
	return wrs
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// post posts requests as far as there are slots.
func (q *QP) post(wrs []verbs.SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if !q.executes() {
		return q.QP.PostSend(wrs)
	}
	room := q.slots.take(wrs)
	q.sources.add(wrs[:room], &q.pd.ctx.keys)
	n, err := q.QP.PostSend(wrs[:room])
	if err != nil {
		q.slots.giveBack(room - n)
		q.sources.takeBack(room - n)
		return n, err
	}
	if n < len(wrs) {
		return n, fmt.Errorf("%w: it holds %d requests", verbs.ErrQueueFull, q.slots.cap)
	}
	return n, nil
}

// PostRecv implements verbs.QP.
func (q *QP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := q.pd.ctx.d.ask(PostRecv); err != nil {
		return 0, err
	}
	return q.QP.PostRecv(wrs)
}

// FailNextSend has the next request that is posted fail with a status, without being
// executed. A flush is not one to ask for.
func (q *QP) FailNextSend(status verbs.WCStatus) {
	q.posting.Lock()
	defer q.posting.Unlock()
	q.nextStatus = status
}

// failNext completes a request that is not executed with nextStatus, after all that completed
// before. posting is held.
func (q *QP) failNext(wr *verbs.SendWR) {
	status := q.nextStatus
	q.nextStatus = verbs.WCSuccess
	q.sendCQ.inject(verbs.WC{WRID: wr.WRID, Status: status, QPN: q.num})
	q.toErrorLocked()
}

// FailReceives moves the QP to ERR as a device does that found a receive to be at fault: the
// oldest one completes with the status and all others are flushed. If there is none it is the
// next.
func (q *QP) FailReceives(status verbs.WCStatus) {
	q.recvStatus.Store(uint32(status))
	q.toError()
}

func (q *QP) toError() {
	q.posting.Lock()
	defer q.posting.Unlock()
	q.toErrorLocked()
}

func (q *QP) toErrorLocked() {
	// It fails only for a QP that is closed, or not connected yet.
	_ = q.QP.Modify(&verbs.QPAttr{State: verbs.QPErr}, verbs.QPMaskState)
	q.sources.drop()
}

// failed takes a completion of this QP in that may have failed: a receive with what a test asked
// for, and a request of the send queue gives back slots when the user sees it.
func (q *QP) failed(wc *verbs.WC, send bool) {
	switch {
	case wc.Status == verbs.WCSuccess:
	case send:
		q.slots.lift()
	default:
		if s := q.recvStatus.Swap(0); s != 0 {
			wc.Status = verbs.WCStatus(s)
		}
	}
}

// Close implements verbs.QP.
func (q *QP) Close() error {
	err := q.pd.ctx.d.gone(kindQP, q.QP.Close())
	if err != nil {
		return err
	}
	q.sendCQ.remove(q)
	q.recvCQ.remove(q)
	q.sources.drop()
	c := q.pd.ctx
	c.mu.Lock()
	delete(c.qps, q.QP)
	c.mu.Unlock()
	return nil
}

// slots are those of a send queue.
type slots struct {
	cap uint64
	all bool // every request is signalled

	mu     sync.Mutex
	posted uint64
	freed  uint64
	marks  []uint64 // what signalled requests free, in order
	lifted bool     // the QP failed, and takes what it is given
}

// take counts the first of wrs, as many as there is room for.
func (s *slots) take(wrs []verbs.SendWR) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range wrs {
		if !s.lifted && s.posted-s.freed >= s.cap {
			return i
		}
		s.posted++
		if s.all || wrs[i].Flags&verbs.SendSignaled != 0 {
			s.marks = append(s.marks, s.posted)
		}
	}
	return len(wrs)
}

// giveBack takes back the last n, which were not posted.
func (s *slots) giveBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posted -= uint64(n)
	for len(s.marks) > 0 && s.marks[len(s.marks)-1] > s.posted {
		s.marks = s.marks[:len(s.marks)-1]
	}
}

// free is called when the user has polled a successful completion.
func (s *slots) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.marks) > 0 {
		s.freed = s.marks[0]
		s.marks = s.marks[:copy(s.marks, s.marks[1:])]
	}
}

func (s *slots) lift() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifted = true
}

func (s *slots) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posted, s.freed, s.marks, s.lifted = 0, 0, s.marks[:0], false
}
