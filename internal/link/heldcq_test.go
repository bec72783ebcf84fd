package link

import (
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A heldCQ keeps what has completed to itself while it is held.
type heldCQ struct {
	verbs.CQ
	held *atomic.Bool
}

func (q heldCQ) Poll(wcs []verbs.WC) (int, error) {
	if q.held.Load() {
		return 0, nil
	}
	return q.CQ.Poll(wcs)
}

// holdSends keeps what a lane's requests have completed to itself until it is let go.
func holdSends(e *laneEnd) (hold, letGo func()) {
	held := new(atomic.Bool)
	e.mu.Lock()
	e.sq.cq = heldCQ{e.sq.cq, held}
	e.mu.Unlock()
	return func() { held.Store(true) }, func() {
		held.Store(false)
		e.mu.Lock()
		e.reapAndSettle()
		e.mu.Unlock()
	}
}
