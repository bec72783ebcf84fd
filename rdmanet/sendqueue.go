package rdmanet

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// A sendQueue posts to the send queue of a QP and keeps account of its slots: a
// slot is taken by a post and given back when a later signalled request is seen
// completed. It signals often enough that a full queue always holds a signalled
// request. Not safe for concurrent use: the send half's lock guards it.
type sendQueue struct {
	qp    verbs.QP
	cq    verbs.CQ
	cap   uint32
	every uint32 // at least every so many requests one is signalled

	posted    uint64 // requests posted
	completed uint64 // requests known to be complete
	signaled  uint64 // posted count up to which a signalled request follows

	// confirm makes a request that the peer's device answers, behind all before it: nil where
	// every completion is such an answer. It is posted after each request that is to be
	// signalled, and is signalled in its place.
	confirm *confirmation
}

// sendQueueReserve is the room kept for control messages: a doorbell and, where
// there is no WRITE_WITH_IMM, the WRITE before it.
const sendQueueReserve = 4

func newSendQueue(qp verbs.QP, cq verbs.CQ, capacity int) sendQueue {
	return sendQueue{qp: qp, cq: cq, cap: uint32(capacity), every: max(uint32(capacity)/4, 1)}
}

// room is the number of requests that may be posted now.
func (q *sendQueue) room() int {
	room := int(q.cap) - int(q.posted-q.completed)
	if q.confirm != nil {
		room-- // there is always a place for one
	}
	return room
}

// reserveRoom makes sure that n requests may be posted, reaping completions if
// the queue is more than half full.
func (q *sendQueue) reserveRoom(n int) (bool, error) {
	if q.posted-q.completed > uint64(q.cap/2) {
		if err := q.reap(); err != nil {
			return false, err
		}
	}
	return q.room() >= n, nil
}

// post posts wrs, of which the last is signalled if it is due or signal says so.
// The caller has made sure of the room. An *unconfirmedError says that they were posted.
func (q *sendQueue) post(wrs []verbs.SendWR, signal bool) error {
	signal = signal || q.posted+uint64(len(wrs))-q.signaled >= uint64(q.every)
	if q.confirm == nil || !signal {
		return q.postAll(wrs, signal)
	}
	if err := q.postAll(wrs, false); err != nil {
		return err
	}
	if err := q.ask(); err != nil {
		return &unconfirmedError{err}
	}
	return nil
}

// An unconfirmedError says that requests were posted, and may arrive, but that the one was
// not by which they are confirmed: the peer may have left between the two.
type unconfirmedError struct{ err error }

func (e *unconfirmedError) Error() string { return "posted, and not confirmed: " + e.err.Error() }
func (e *unconfirmedError) Unwrap() error { return e.err }

// ask posts the request that the peer's device answers, signalled.
func (q *sendQueue) ask() error {
	r := takeRequests()
	defer r.giveBack()
	return q.postAll(q.confirm.request(r), true)
}

// postAll posts wrs, of which the last is signalled if signal says so.
func (q *sendQueue) postAll(wrs []verbs.SendWR, signal bool) error {
	q.posted += uint64(len(wrs))
	for i := range wrs[:len(wrs)-1] {
		wrs[i].Flags &^= verbs.SendSignaled
	}
	last := &wrs[len(wrs)-1]
	last.WRID = q.posted
	if signal {
		last.Flags |= verbs.SendSignaled
		q.signaled = q.posted
	} else {
		last.Flags &^= verbs.SendSignaled
	}
	n, err := q.qp.PostSend(wrs)
	if err != nil {
		q.posted -= uint64(len(wrs) - n)
		if q.signaled > q.posted {
			q.signaled = q.posted
		}
	}
	return err
}

// reap takes completions from the send CQ. The first failure is returned.
func (q *sendQueue) reap() error {
	wcs := takeCompletions()
	defer wcs.giveBack()
	for {
		n, err := q.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			wc := &wcs[i]
			if wc.Status != verbs.WCSuccess {
				return wc.Status
			}
			q.completed = wc.WRID
		}
		if n < len(wcs) {
			return nil
		}
	}
}

// flushed says that every signalled request has completed, as far as it was reaped.
// Behind the end of the stream, which is signalled, only credits follow.
func (q *sendQueue) flushed() bool { return q.completed >= q.signaled }

// sending says that the device has still something to do, as far as it was reaped.
func (q *sendQueue) sending() bool { return q.signaled > q.completed }

// idle says that every request has completed, as far as it was reaped.
func (q *sendQueue) idle() bool { return q.posted == q.completed }
