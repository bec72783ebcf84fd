package link

import (
	"math"
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

// meterSends lets as many of a lane's requests be known to be completed as left says, at first none, until all
// are let go.
func meterSends(e *laneEnd) (left *atomic.Int64, letGo func()) {
	left = new(atomic.Int64)
	e.mu.Lock()
	e.sq.cq = meteredCQ{e.sq.cq, left}
	e.mu.Unlock()
	return left, func() {
		left.Store(math.MaxInt64)
		e.mu.Lock()
		e.reapAndSettle()
		e.mu.Unlock()
	}
}

// A meteredCQ lets so many completions be polled as left says, and takes them off it.
type meteredCQ struct {
	verbs.CQ
	left *atomic.Int64
}

func (q meteredCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := q.CQ.Poll(wcs[:min(int64(len(wcs)), q.left.Load())])
	q.left.Add(-int64(n))
	return n, err
}
