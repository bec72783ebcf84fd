//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func loadStatus(p *peer) uint32 { return atomic.LoadUint32(p.out.Status) }

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
func (q *qp) gotMR(m *shm.RemoteMR) error {
	q.mu.Lock()
	defer q.unlock()
	if q.peer == nil {
		m.Unmap()
		return nil
	}
	if !q.peer.asked || q.peer.pausing {
		m.Unmap()
		return fmt.Errorf("%w: MR that was not asked for", verbs.ErrProtocol)
	}
	q.peer.asked, q.peer.missed = false, 0
	q.peer.add(m)
	q.progress()
	return nil
}

const (
	firstMissedPause = 5 * time.Millisecond
	lastMissedPause  = time.Second
	// maxMissed is how long a connection stands that cannot be given an MR that it needs.
	maxMissed = time.Minute
)

// missedMR is told that there was no descriptor for what has come, or no room to map it. If that is
// the MR that was asked for, it is asked for again, the first time at once and then after a pause,
// and missedMR reports so: a connection that stands need not end for what may be there soon.
func (q *qp) missedMR() bool {
	q.mu.Lock()
	defer q.unlock()
	p := q.peer
	if p == nil || !p.asked || p.pausing {
		return false
	}
	q.stats.MissedMRs++
	if p.missed++; p.missed == 1 {
		p.missing = time.Now()
		p.asked = false
		q.progress()
		return true
	}
	if time.Since(p.missing) > maxMissed {
		return false
	}
	p.pausing = true
	time.AfterFunc(min(firstMissedPause<<min(p.missed-2, 10), lastMissedPause), func() {
		q.mu.Lock()
		defer q.unlock()
		if q.peer == p {
			p.asked, p.pausing = false, false
			q.progress()
		}
	})
	return true
}

// makeRoom drops the peer's oldest mapping for the MR that was asked for; it can be asked for again.
// False: there is none to drop.
func (q *qp) makeRoom() bool {
	q.mu.Lock()
	defer q.unlock()
	p := q.peer
	if p == nil || !p.asked || p.pausing || p.writing > 0 || len(p.mrs) == 0 {
		return false
	}
	p.drop(p.mrs[0].key)
	return true
}

// gotNoMR is told that the peer has no such MR for us.
func (q *qp) gotNoMR(rkey uint32) {
	q.mu.Lock()
	defer q.unlock()
	if q.peer == nil || !q.peer.asked || q.peer.pausing {
		return
	}
	q.peer.asked, q.peer.missed = false, 0
	q.peer.refused = rkey
	q.progress()
}

// dropMR lets go of an MR that the peer deregistered.
func (q *qp) dropMR(rkey uint32) {
	q.lockAlone()
	if q.peer != nil {
		q.peer.drop(rkey)
	}
	q.unlock()
}
