package link

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// A Budget bounds memory that several links share. The zero value gives nothing. Its methods
// may be called concurrently.
//
// When it runs out, growth is refused first, then places that a listener gives in store, and
// only then the rings of streams that are opened: growth leaves an eighth of the limit to the
// others, and places a sixteenth to streams.
type Budget struct {
	limit, used atomic.Int64
	refused     atomic.Pointer[time.Time] // when something was
}

// A use is what memory is taken for.
type use uint8

const (
	useStream use = iota // opened, or going back to a small ring
	usePlace             // in store at a dialer
	useGrowth
)

// shortTime is for how long a refusal has large rings taken back.
const shortTime = 2 * time.Second

// NewBudget returns a Budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := new(Budget)
	b.limit.Store(limit)
	return b
}

// SetLimit sets the limit from now on. What is in use beyond it is taken back as far as rings
// are empty, within seconds.
func (b *Budget) SetLimit(limit int64) { b.limit.Store(limit) }

// InUse returns how many bytes are taken.
func (b *Budget) InUse() int64 { return b.used.Load() }

// bound is how much may be in use after something was taken for u.
func (b *Budget) bound(u use) int64 {
	limit := b.limit.Load()
	switch u {
	case useGrowth:
		limit -= limit / 8
	case usePlace:
		limit -= limit / 16
	}
	return limit
}

// take takes n bytes for u, or says why not: the error matches verbs.ErrNoMemory. A nil Budget
// is unbounded.
func (b *Budget) take(n int, u use) error {
	if b == nil {
		return nil
	}
	for {
		used := b.used.Load()
		if int64(n) > b.bound(u)-used {
			now := time.Now()
			b.refused.Store(&now)
			return fmt.Errorf("%w: rings of links use %d bytes of a limit of %d, and %d more are needed; raise it with SetMemoryLimit",
				verbs.ErrNoMemory, used, b.limit.Load(), n)
		}
		if b.used.CompareAndSwap(used, used+int64(n)) {
			return nil
		}
	}
}

func (b *Budget) give(n int) {
	if b != nil {
		b.used.Add(-int64(n))
	}
}

// short reports whether memory runs out: something was refused lately, or would be.
func (b *Budget) short() bool {
	if b == nil {
		return false
	}
	at := b.refused.Load()
	return b.used.Load() >= b.bound(useGrowth) || at != nil && time.Since(*at) < shortTime
}
