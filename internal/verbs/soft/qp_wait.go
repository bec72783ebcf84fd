//go:build linux && (amd64 || arm64)

package soft

import (
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// waitState is about the oldest request that waits; those behind it wait for it.
type waitState struct {
	since   time.Time // when it began to wait for the peer; zero if it does not
	naks    uint8     // how often the peer had no receive
	due     outcome   // what the timer runs for; 0 if it does not
	inv     bool      // a LOCAL_INV: its key is being revoked
	revoked bool      // and has been, everywhere
	tooLong bool      // it failed for its length
	badRecv bool      // and for a receive whose memory is not valid
	sent    uint32    // bytes of it that are in the bounce area already
	pause   time.Duration
}

func (w *waitState) reset() { *w = waitState{due: w.due} }

const (
	minPause = 500 * time.Microsecond // between looks at a bounce area that stays full
	maxPause = 20 * time.Millisecond
)

// rnrTimers are the RNR timer's values in units of 10 us (IBA table 46).
var rnrTimers = [32]uint32{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

func rnrDelay(timer uint8) time.Duration {
	return time.Duration(rnrTimers[timer&31]) * 10 * time.Microsecond
}

// ackTimeout is how long a peer may fail to answer, all retries together; 0 is for
// ever (IBA 9.7.6.1.3).
func ackTimeout(attr *verbs.QPAttr) time.Duration {
	if attr.Timeout == 0 {
		return 0
	}
	return (4096 * time.Nanosecond << (attr.Timeout & 31)) * time.Duration(attr.RetryCnt+1)
}

// waitFor arranges that the oldest request is tried again. It fails the request
// if that has been done often enough. mu is held.
func (q *qp) waitFor(o outcome) {
	w := &q.sq.wait
	switch o {
	case waitPeer:
		if q.typ != verbs.QPTypeRC {
			q.retryAfter(meetTimeout, o)
			return
		}
		now := time.Now()
		if w.since.IsZero() {
			w.since = now
		}
		if limit := ackTimeout(&q.attr); limit > 0 {
			left := limit - now.Sub(w.since)
			if left <= 0 {
				q.headFailed(verbs.WCRetryExcErr)
				return
			}
			q.retryAfter(left, o)
		}
	case waitRNR:
		if w.due == o {
			return // the RNR timer is running; this is somebody else's retry
		}
		q.stats.RNRNaks++
		if q.attr.RNRRetry != 7 && w.naks >= q.attr.RNRRetry {
			q.headFailed(verbs.WCRNRRetryExcErr)
			return
		}
		w.naks = min(w.naks+1, 7)
		q.retryAfter(rnrDelay(shm.Status(atomic.LoadUint32(q.peer.out.Status)).MinRNR()), o)
	case waitBounce, waitSocket:
		if o == waitSocket || !q.peer.asked {
			w.pause = min(max(minPause, 2*w.pause), maxPause)
			q.retryAfter(w.pause, o)
		}
	}
	// What else there is ends with the peer's answer or the hang-up.
}

// retryAfter runs the timer.
func (q *qp) retryAfter(d time.Duration, why outcome) {
	q.sq.wait.due = why
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.timeout)
		return
	}
	q.timer.Reset(d)
}

func (q *qp) timeout() {
	q.mu.Lock()
	q.sq.wait.due = 0
	if q.peer != nil {
		q.peer.stalled = 0 // ask again
	}
	q.progress()
	q.unlock()
}

// retry tries the requests that wait once more.
func (q *qp) retry() {
	q.mu.Lock()
	q.progress()
	q.unlock()
}

// progress executes the requests that wait, in order, as far as they go. mu is held.
func (q *qp) progress() {
	s := &q.sq
	for s.done != s.posted {
		st := q.State()
		// In SQD only what was begun is finished.
		if st != verbs.QPRTS && (st != verbs.QPSQD || s.wait.sent == 0) {
			return
		}
		wr := &s.slot(s.done).wr
		o := q.settle(wr, q.execute(wr))
		if o.waits() {
			q.waitFor(o)
			return
		}
		if o != succeeded {
			q.headFailed(verbs.WCStatus(o))
			return
		}
		if q.signals(wr) {
			q.completeSend(wr, verbs.WCSuccess, s.done+1)
		}
		s.forget()
		if st == verbs.QPSQD {
			q.drained()
		}
	}
}

// headFailed fails the oldest request that waits.
func (q *qp) headFailed(status verbs.WCStatus) {
	s := &q.sq
	wr := s.slot(s.done).wr
	upto := s.done + 1
	tooLong, begun := s.wait.tooLong, s.wait.sent > 0
	s.forget()
	s.wait.tooLong = tooLong
	if begun && q.typ != verbs.QPTypeRC {
		// The peer has a part of it, and no other message can begin.
		q.completeSend(&wr, status, upto)
		q.toError()
		return
	}
	q.sendFailed(&wr, status, upto)
}

// drained reports that the send queue has stopped.
func (q *qp) drained() {
	q.ctx.raise(verbs.AsyncEvent{Type: verbs.EventSQDrained, QP: q})
}

// Answers of the peer, from the link's goroutine.

func (q *qp) gotKicked(l *link) {
	q.mu.Lock()
	if p := q.peerOf(l); p != nil && p.kicked {
		p.kicked = false
		again := p.again
		p.again = false
		q.progress()
		if again && q.peer == p {
			q.kick(p)
		}
	}
	q.unlock()
}

func (q *qp) gotBounce(l *link, ready bool) {
	q.mu.Lock()
	defer q.unlock()
	p := q.peerOf(l)
	if p == nil || !p.asked || p.pausing {
		return
	}
	p.asked = false
	p.bounced = ready
	if s := &q.sq; !ready && s.done != s.posted && q.State() == verbs.QPRTS {
		q.headFailed(verbs.WCRemOpErr)
		return
	}
	q.progress()
}
