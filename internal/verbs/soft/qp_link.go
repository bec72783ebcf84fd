//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// attach connects the QP by l with the peer whose offer came over its socket or is to come back
// over that, and for which d has looked unless that is nil. It owns l and peerFDs, also on
// error.
func (q *qp) attach(l *link, peerOffer []byte, peerFDs []int, d *bringUp) error {
	p, err := openOffer(peerOffer, peerFDs)
	if err == nil && d != nil && p.qpn != d.to {
		err = fmt.Errorf("%w: offer of QP %d in place of %d", verbs.ErrProtocol, p.qpn, d.to)
		p.unmap()
	}
	if err != nil {
		l.closeSockets()
		return err
	}
	return q.attachPeer(l, p, d)
}

// attachPeer is attach for a peer whose offer was taken. It owns p, also on error.
func (q *qp) attachPeer(l *link, p *peer, d *bringUp) error {
	p.findLocal(q.ctx, l.rx)
	q.mu.Lock()
	// One that was reset since d began has another inbox than the peer was offered, and another peer perhaps.
	if st := q.State(); q.closed || q.link != nil || st == verbs.QPReset || st == verbs.QPErr || d != nil && d != q.dialing {
		closed := q.closed
		q.mu.Unlock()
		p.unmap()
		l.closeSockets()
		if closed {
			return verbs.ErrClosed
		}
		return fmt.Errorf("%w: QP in %v cannot be connected, or is already", verbs.ErrState, st)
	}
	if p.door != nil {
		p.door.stuck = l.doorStuck
	}
	q.peer, q.link = p, l
	q.attr.DestQPN = p.qpn
	q.recvCQ.attach(q, p)
	var gone []uint32
	if q.offered != nil {
		for _, m := range q.offered.mrs {
			m.mu.Lock()
			if !l.grant(m) {
				gone = append(gone, m.key) // closed since it was offered
			}
			m.mu.Unlock()
		}
		q.offered.close()
		q.offered = nil
	}
	q.endDial()
	if l.onCM == nil && q.State() >= verbs.QPRTR {
		// Before all else: the other end of a bring-up waits for it. The peer of
		// the connection manager learns it from REP or RTU.
		l.tell(msgUp)
	}
	go l.run()
	q.recvCQ.mu.Lock()
	q.failTaken() // by attach
	q.progress()
	q.unlock()
	for _, key := range gone {
		revoke([]*link{l}, key, false)
	}
	return nil
}

// closeSockets is the end of a link that does not run, or not any more.
func (l *link) closeSockets() {
	l.tx.Close()
	if l.rx != l.tx {
		l.rx.Close()
	}
}

// disconnect ends the connection: the QP goes to ERR and what is queued is flushed.
func (q *qp) disconnect() {
	q.lockAlone()
	l := q.link
	if q.State() != verbs.QPReset {
		q.toError()
	}
	q.unlock()
	if l != nil {
		l.close(nil)
	}
}

// linkDown ends the use of the peer's memory. What the peer had published comes
// first. The QP goes to ERR, but for one connected by hand whose peer was only
// destroyed or reset: that one has, as on the wire, a peer that does not answer. A UC QP
// learns nothing of its peer at all.
func (q *qp) linkDown(l *link, orderly bool) {
	q.lockAlone()
	defer q.unlock()
	if q.link != l {
		return
	}
	if q.State() >= verbs.QPInit {
		if q.typ == verbs.QPTypeRC && (l.onHangup != nil || !orderly) {
			q.toError()
			q.wakeAll()
		} else {
			q.deliver()
		}
	}
	q.dropPeer()
	q.progress()
}

// peerOf returns the peer of l, or nil. A QP that was reset has another link, or none, while what the former
// peer has said is still being read. mu is held.
func (q *qp) peerOf(l *link) *peer {
	if q.link != l {
		return nil
	}
	return q.peer
}

// dropPeer unmaps the peer.
func (q *qp) dropPeer() {
	if q.peer == nil {
		return
	}
	q.wake = false
	c := q.recvCQ
	c.mu.Lock()
	if !q.flushing {
		c.rx = without(c.rx, q)
	}
	c.mu.Unlock()
	q.peer.unmap()
	q.peer = nil
}

// deliver takes what the peer has published into the CQ.
func (q *qp) deliver() {
	c := q.recvCQ
	c.mu.Lock()
	if q.in != nil && !q.stopped {
		c.takePublished(q, true)
	}
	q.failTaken()
}

// failTaken moves the QPs to ERR of which what was taken makes no sense. mu is held, and the CQ's lock,
// which it releases.
func (q *qp) failTaken() {
	failed := q.recvCQ.failed
	q.recvCQ.failed = nil
	q.recvCQ.mu.Unlock()
	for _, f := range failed {
		if f == q {
			q.receiveFailedLocked()
		} else {
			go f.receiveFailed()
		}
	}
}

// progressInbox takes what the peer has published into the CQ, for a peer or an
// SRQ that cannot wait for the application's next poll.
func (q *qp) progressInbox() {
	q.mu.Lock()
	if q.peer != nil {
		q.deliver()
	}
	q.unlock()
}

// wakeSelf signals the channel in place of a peer that cannot.
func (q *qp) wakeSelf() {
	if ch := q.recvCQ.channel; ch != nil {
		ch.unclog()
	}
}

// setStatus shows the peer what the QP is ready for; q.in exists.
func (q *qp) setStatus() {
	s := shm.StatusDown
	switch st := q.State(); {
	case st == verbs.QPErr:
		s = shm.StatusError
	case st >= verbs.QPRTR:
		s = shm.StatusUp
	}
	atomic.StoreUint32(q.in.Status, uint32(shm.MakeStatus(s, q.attr.AccessFlags, q.attr.MinRNRTimer)))
}

// commitBounce backs the bounce area at the peer's wish.
func (q *qp) commitBounce() error {
	c := q.recvCQ
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.in == nil || q.stopped {
		return verbs.ErrState
	}
	return q.in.CommitBounce()
}
