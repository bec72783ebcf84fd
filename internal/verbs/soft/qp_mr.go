//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// maxAsks bounds the questions for MRs that are under way, beside that of the oldest request that waits: the
// socket has to hold them while the peer does not run.
const maxAsks = 64

// AskMR is driver.MRAsker's.
func (q *qp) AskMR(rkey uint32, got func(known bool)) (asked bool) {
	q.mu.Lock()
	defer q.unlock()
	p := q.peer
	if p == nil || p.pausing || p.find(rkey) != nil || len(p.asks) >= maxAsks || p.asking(rkey) != nil {
		return false
	}
	q.ask(ask{key: rkey, got: got})
	return true
}

// ask asks the peer for an MR. mu is held.
func (q *qp) ask(a ask) {
	q.peer.asks = append(q.peer.asks, a)
	q.link.tellKey(msgLookup, a.key)
}

// lookup has the oldest request wait for an MR that is not mapped yet.
func (q *qp) lookup(rkey uint32) outcome {
	p := q.peer
	if p.refused == rkey && !p.asked {
		p.refused = 0
		return failed(verbs.WCRemAccessErr)
	}
	if !p.asked {
		p.asked = true
		if a := p.asking(rkey); a != nil {
			a.waits = true
		} else {
			q.ask(ask{key: rkey, waits: true})
		}
	}
	return waitMR
}

// gotMR takes the MR that was asked for.
func (q *qp) gotMR(l *link, m *shm.RemoteMR) error {
	q.mu.Lock()
	p := q.peerOf(l)
	if p == nil {
		q.unlock()
		m.Unmap()
		return nil
	}
	if len(p.asks) == 0 || p.asks[0].key != m.Key {
		q.unlock()
		m.Unmap()
		return fmt.Errorf("%w: MR that was not asked for", verbs.ErrProtocol)
	}
	p.add(m)
	q.answered(p, true)
	return nil
}

// answered ends a question, and has whoever waits for the answer go on. mu is held when it is called.
func (q *qp) answered(p *peer, known bool) {
	a := p.answered()
	if a.waits {
		p.asked, p.missed = false, 0
		q.progress()
	}
	q.unlock()
	if a.got != nil {
		a.got(known)
	}
}

const (
	firstMissedPause = 5 * time.Millisecond
	lastMissedPause  = time.Second
	// maxMissed is how long a connection stands that cannot be given an MR that it needs.
	maxMissed = time.Minute
)

// missedMR is told that there was no descriptor for what has come, or no room to map it. If that is
// an MR that was asked for, and missedMR reports so, it is asked for again, the first time at once and
// then after a pause: a connection that stands need not end for what may be there soon.
func (q *qp) missedMR(l *link) bool {
	q.mu.Lock()
	p := q.peerOf(l)
	if p == nil || len(p.asks) == 0 {
		q.unlock()
		return false
	}
	q.stats.MissedMRs++
	a := p.answered()
	again := !a.waits || q.missedWaiting(p)
	q.unlock()
	if a.got != nil {
		a.got(false)
	}
	return again
}

// missedWaiting is missedMR of the MR that the oldest request waits for. mu is held.
func (q *qp) missedWaiting(p *peer) bool {
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

// makeRoom drops the peer's oldest mapping for an MR that was asked for; it can be asked for again.
// False: there is none to drop.
func (q *qp) makeRoom(l *link) bool {
	q.mu.Lock()
	defer q.unlock()
	p := q.peerOf(l)
	if p == nil || len(p.asks) == 0 || p.writing > 0 || len(p.mrs) == 0 {
		return false
	}
	p.drop(p.mrs[0].Key)
	return true
}

// gotNoMR is told that the peer has no such MR for us.
func (q *qp) gotNoMR(l *link, rkey uint32) {
	q.mu.Lock()
	p := q.peerOf(l)
	if p == nil || len(p.asks) == 0 || p.asks[0].key != rkey {
		q.unlock()
		return
	}
	if p.asks[0].waits {
		p.refused = rkey
	}
	q.answered(p, false)
}

// dropMR lets go of an MR that the peer deregistered.
func (q *qp) dropMR(l *link, rkey uint32) {
	q.lockAlone()
	if p := q.peerOf(l); p != nil {
		p.drop(rkey)
	}
	q.unlock()
}
