package faulty

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// OnReuse has f told of memory that a program has changed, or closed the MR of, before the request that
// reads it has completed, as only a device knows that is asynchronous. nil takes that back: then the device
// panics. f may be called by several goroutines at once, and is not to call the device.
func (d *Driver) OnReuse(f func(error)) {
	if f == nil {
		d.reuse.Store(nil)
		return
	}
	d.reuse.Store(&f)
}

// reused tells of that; a nil error is none.
func (q *QP) reused(err error) {
	if err == nil || !q.executes() { // it has failed meanwhile, which its user may know already
		return
	}
	err = fmt.Errorf("%s: QP %#x: %w", q.pd.ctx.d.name, q.num, err)
	if f := q.pd.ctx.d.reuse.Load(); f != nil {
		(*f)(err)
		return
	}
	panic(err)
}

// executes reports whether requests of the send queue are carried out.
func (q *QP) executes() bool {
	switch q.QP.State() {
	case verbs.QPRTS, verbs.QPSQD:
		return true
	}
	return false
}

// completed takes in a completion of this QP that its user is about to see.
func (q *QP) completed(wc *verbs.WC, send bool) {
	switch {
	case !q.sources.records:
	case wc.Status != verbs.WCSuccess || !q.executes():
		q.sources.drop()
	case send:
		q.reused(q.sources.completed(wc.WRID))
	}
}

// closed takes in that an MR is closed.
func (c *Context) closed(m *mr) {
	c.keys.remove(m)
	if !c.d.plan.Asynchronous {
		return
	}
	c.mu.Lock()
	qps := make([]*QP, 0, len(c.qps))
	for _, q := range c.qps {
		qps = append(qps, q)
	}
	c.mu.Unlock()
	for _, q := range qps {
		q.reused(q.sources.closed(m))
	}
}
