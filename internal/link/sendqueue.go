package link

import (
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// sendQueue posts to the send queue of a QP and keeps account of it. It signals often enough
// that a full queue always holds a signalled request; what uses send memory is signalled
// always. The lane's lock guards it, but for the post between beginAhead and endAhead.
type sendQueue struct {
	qp  verbs.QP
	cq  verbs.CQ
	cap uint64

	posted    uint64 // requests
	ahead     int    // that are being posted without the lane's lock, and not among those yet
	completed uint64
	signaled  uint64 // posted up to the last signalled request
	refused   error  // of the first request that the device has not taken: none is posted after it
	wcs       [16]verbs.WC
	spare     [][]verbs.SendWR // of one each, for beginAhead

	// counter is the QP, if its driver counts whom it wakes, and woken what that was when it was last
	// asked.
	counter driver.QPStatter
	woken   driver.QPStats

	// confirm makes a request that the peer's device answers, behind all before it: nil where
	// every completion is such an answer. It is posted after each request that is to be
	// signalled, and is signalled in its place.
	confirm *confirmation
	asking  uint8 // of these requests, under way
}

// room returns how many requests may be posted. None is while as many confirmations are under way as
// the device takes: it would hold back the next one and all behind it, siw even the answers that the
// peer waits for.
func (q *sendQueue) room() int {
	room := int(q.cap-(q.posted-q.completed)) - aheadRoom*q.ahead
	if q.confirm != nil {
		if q.asking >= q.confirm.reads {
			return 0
		}
		room-- // there is always a place for one
	}
	return room
}

// hasHalf reports whether half of the queue is free at least.
func (q *sendQueue) hasHalf() bool { return q.room() >= sendDepth/2 }

// hasTwo reports whether there is room for another message behind the next one for certain, if the lane's lock is not let
// go of in between.
func (q *sendQueue) hasTwo() bool { return q.confirm == nil && q.hasHalf() }

// post posts wrs. The caller has made sure of the room.
func (q *sendQueue) post(wrs []verbs.SendWR, signal bool) error {
	signal = signal || q.posted+uint64(len(wrs))-q.signaled >= q.cap/4
	if q.confirm != nil && signal {
		if err := q.take(wrs, false); err != nil {
			return err
		}
		return q.askPeer()
	}
	return q.take(wrs, signal)
}

// ask posts a request for an answer of the peer's device, which is in its memory at addr.
func (q *sendQueue) ask(addr uint64, rkey uint32) error {
	if q.confirm != nil {
		return q.askPeer()
	}
	return q.take([]verbs.SendWR{{Opcode: verbs.WRRDMAWrite, RemoteAddr: addr, RKey: rkey}}, true)
}

// askPeer posts the request that is answered behind all before it.
func (q *sendQueue) askPeer() error {
	err := q.take(q.confirm.request(), true)
	if err == nil {
		q.asking++
	}
	return err
}

// take has the device take wrs, of which the last is signalled if signal is set. Behind one that
// it did not take nothing is posted: the peer would take what comes next for what is missing.
func (q *sendQueue) take(wrs []verbs.SendWR, signal bool) error {
	if q.refused != nil {
		return q.refused
	}
	last := &wrs[len(wrs)-1]
	last.WRID = q.posted + uint64(len(wrs))
	if signal {
		last.Flags |= verbs.SendSignaled
	}
	n, err := q.qp.PostSend(wrs)
	if err != nil {
		q.posted += uint64(n)
		q.refused = err
		return err
	}
	q.posted = last.WRID
	if signal {
		q.signaled = q.posted
	}
	return nil
}

// mayGoAhead reports whether beginAhead may be called. Its requests are not signalled, and no message
// need follow them: without a bound they could fill the queue, and nothing would complete.
func (q *sendQueue) mayGoAhead() bool {
	return q.posted+uint64(q.ahead)-q.signaled < q.cap/4*3
}

// aheadRoom is the room that a WRITE ahead of its doorbell takes: its own, and that of the doorbell, for
// which it would otherwise have to be carried out again.
const aheadRoom = 2

// beginAhead returns the request of a WRITE of which nobody is told, for the caller to post without the
// lane's lock. The caller has made sure of the room. endAhead follows, and the doorbell at once.
func (q *sendQueue) beginAhead(p []byte, addr uint64, rkey uint32) ([]verbs.SendWR, error) {
	if q.refused != nil {
		return nil, q.refused
	}
	var wrs []verbs.SendWR
	if n := len(q.spare); n > 0 {
		wrs, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		wrs = make([]verbs.SendWR, 1)
	}
	q.ahead++
	wrs[0] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, Inline: p, RemoteAddr: addr, RKey: rkey}
	return wrs, nil
}

// endAhead counts what beginAhead has begun. err is that of its post.
func (q *sendQueue) endAhead(wrs []verbs.SendWR, err error) error {
	wrs[0].Inline = nil // keep nothing of the application's
	q.ahead--
	q.spare = append(q.spare, wrs)
	if err != nil {
		q.refused = err
		return err
	}
	q.posted++
	return nil
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
			q.asking -= min(q.asking, 1) // with confirm nothing else is signalled
			some = true
		}
		if n < len(q.wcs) {
			return some, nil
		}
	}
}
