package rdmanet

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// A sendQueue posts to the send queue of a QP and keeps account of its slots: a
// slot is taken by a post and given back when a later signalled request is seen
// completed. It signals often enough that a full queue always holds a signalled
// request. Not safe for concurrent use: the Conn's tx lock guards it.
type sendQueue struct {
	qp  verbs.QP
	cq  verbs.CQ
	cap uint64

	posted    uint64 // requests posted
	completed uint64 // requests known to be complete
	signaled  uint64 // posted count up to which a signalled request follows
	every     uint64 // at least every so many requests one is signalled
}

// sendQueueReserve is the room kept for control messages: a doorbell and, where
// there is no WRITE_WITH_IMM, the WRITE before it.
const sendQueueReserve = 4

func newSendQueue(qp verbs.QP, cq verbs.CQ, capacity int) sendQueue {
	return sendQueue{qp: qp, cq: cq, cap: uint64(capacity), every: max(uint64(capacity)/4, 1)}
}

// room is the number of requests that may be posted now.
func (q *sendQueue) room() int { return int(q.cap - (q.posted - q.completed)) }

// reserveRoom makes sure that n requests may be posted, reaping completions if
// the queue is more than half full.
func (q *sendQueue) reserveRoom(n int) (bool, error) {
	if q.posted-q.completed > q.cap/2 {
		if err := q.reap(); err != nil {
			return false, err
		}
	}
	return q.room() >= n, nil
}

// post posts wrs, of which the last is signalled if it is due or signal says so.
// The caller has made sure of the room.
func (q *sendQueue) post(wrs []verbs.SendWR, signal bool) error {
	q.posted += uint64(len(wrs))
	for i := range wrs[:len(wrs)-1] {
		wrs[i].Flags &^= verbs.SendSignaled
	}
	last := &wrs[len(wrs)-1]
	last.WRID = q.posted
	if signal || q.posted-q.signaled >= q.every {
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
