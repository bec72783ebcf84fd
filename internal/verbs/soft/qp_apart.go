//go:build linux && (amd64 || arm64)

package soft

import "github.com/rdmanet/go-rdmanet/verbs"

// copyUnderLock is the most that a WRITE of which nobody is told copies while it holds the QP's lock.
const copyUnderLock = 4 << 10

// writeApart carries out a WRITE of much inline data that makes no completion at either end, and lets
// other posts go on while it copies. None of them is ordered behind it, since it has not returned. It
// counts as executed from the beginning: what waits in the send queue then comes behind it. mu is held
// when it is called and when it returns.
func (q *qp) writeApart(wr *verbs.SendWR) error {
	p, st, o := q.reach()
	var dst []byte
	if o == succeeded {
		dst, o = q.target(p, st, wr, uint32(len(wr.Inline)), verbs.AccessRemoteWrite)
	}
	if o != succeeded {
		return q.postUnfinished(wr, o)
	}
	q.sq.posted++
	q.sq.done++
	p.writing++
	q.unlock() // the peer may have to be woken for what was posted before
	copy(dst, wr.Inline)
	q.mu.Lock()
	if p.writing--; p.writing == 0 {
		for _, m := range p.dropped {
			m.Unmap()
		}
		p.dropped = nil
		if q.alone > 0 {
			q.copied.Broadcast()
		}
	}
	return nil
}

// lockAlone takes mu when no post copies into the peer's memory without it: for what tells the peer
// that nothing is written there any more.
func (q *qp) lockAlone() {
	q.mu.Lock()
	q.alone++
	for q.peer != nil && q.peer.writing > 0 {
		q.copied.Wait()
	}
	q.alone--
}
