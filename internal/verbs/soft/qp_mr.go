//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

func loadStatus(p *peer) uint32 { return atomic.LoadUint32(p.out.status) }

// lookup asks the peer for an MR that is not mapped yet.
func (q *qp) lookup(rkey uint32) outcome {
	p := q.peer
	if p.refused == rkey && !p.asked {
		p.refused = 0
		return failed(verbs.WCRemAccessErr)
	}
	if !p.asked {
		p.asked = true
		q.link.tellKey(msgLookup, rkey)
	}
	return waitMR
}

// gotMR takes the MR that was asked for.
func (q *qp) gotMR(m *remoteMR) error {
	q.mu.Lock()
	defer q.unlock()
	if q.peer == nil {
		m.unmap()
		return nil
	}
	if !q.peer.asked {
		m.unmap()
		return fmt.Errorf("%w: MR that was not asked for", verbs.ErrProtocol)
	}
	q.peer.asked = false
	q.peer.add(m)
	q.progress()
	return nil
}

// gotNoMR is told that the peer has no such MR for us.
func (q *qp) gotNoMR(rkey uint32) {
	q.mu.Lock()
	defer q.unlock()
	if q.peer == nil || !q.peer.asked {
		return
	}
	q.peer.asked = false
	q.peer.refused = rkey
	q.progress()
}

// dropMR lets go of an MR that the peer deregistered.
func (q *qp) dropMR(rkey uint32) {
	q.mu.Lock()
	if q.peer != nil {
		q.peer.drop(rkey)
	}
	q.unlock()
}
