package link

import "github.com/rdmanet/go-rdmanet/internal/verbs"

// sendQueue posts to the send queue of a QP and keeps account of it. It signals often enough
// that a full queue always holds a signalled request; what uses send memory is signalled
// always. The lane's lock guards it.
type sendQueue struct {
	qp  verbs.QP
	cq  verbs.CQ
	cap uint64

	posted    uint64 // requests
	completed uint64
	signaled  uint64 // posted up to the last signalled request
	wcs       [16]verbs.WC
}

// room returns how many requests may be posted.
func (q *sendQueue) room() int { return int(q.cap - (q.posted - q.completed)) }

// post posts wrs. The caller has made sure of the room.
func (q *sendQueue) post(wrs []verbs.SendWR, signal bool) error {
	q.posted += uint64(len(wrs))
	last := &wrs[len(wrs)-1]
	last.WRID = q.posted
	if signal || q.posted-q.signaled >= q.cap/4 {
		last.Flags |= verbs.SendSignaled
		q.signaled = q.posted
	}
	_, err := q.qp.PostSend(wrs)
	return err
}

// reap takes in what has completed, and reports whether that was anything. The first failure
// is returned.
func (q *sendQueue) reap() (some bool, err error) {
	for {
		n, err := q.cq.Poll(q.wcs[:])
		if err != nil {
			return some, err
		}
		for i := range q.wcs[:n] {
			if wc := &q.wcs[i]; wc.Status != verbs.WCSuccess {
				return some, wc.Status
			}
			q.completed = q.wcs[i].WRID
			some = true
		}
		if n < len(q.wcs) {
			return some, nil
		}
	}
}
