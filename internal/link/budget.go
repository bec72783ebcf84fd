package link

import "sync/atomic"

// A Budget bounds memory that several links share. The zero value gives nothing.
type Budget struct {
	limit, used atomic.Int64
}

// NewBudget returns a Budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := new(Budget)
	b.limit.Store(limit)
	return b
}

// InUse returns how many bytes are taken.
func (b *Budget) InUse() int64 { return b.used.Load() }

// take takes n bytes, and reports whether they were there. A nil Budget is unbounded.
func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	if b.used.Add(int64(n)) > b.limit.Load() {
		b.used.Add(-int64(n))
		return false
	}
	return true
}

func (b *Budget) give(n int) {
	if b != nil {
		b.used.Add(-int64(n))
	}
}
