package memory

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A Budget bounds the memory of rings and send buffers of a process. Its methods may be called
// concurrently.
//
// When it runs out, growth of streams is refused first, then places that a listener gives in
// store, and only then the rings of streams that are opened: growth leaves an eighth of the
// limit to the others, and places a sixteenth to streams.
type Budget struct {
	used    atomic.Int64
	limit   atomic.Int64              // negative until it is set
	start   func() int64              // the limit until then
	refused atomic.Pointer[time.Time] // when something was

	reclaiming sync.Mutex // while memory that nobody uses is given back
	mu         sync.Mutex
	keepers    map[*Slab]struct{} // that have such
}

// A Use is what memory is taken for.
type Use uint8

// What memory is taken for.
const (
	ForStream Use = iota // opened, or going back to a small ring
	ForPlace             // in store at a dialer
	ForGrowth
)

// shortTime is for how long a refusal has large rings taken back.
const shortTime = 2 * time.Second

// NewBudget returns a Budget whose limit in bytes is what start says, until one is set.
func NewBudget(start func() int64) *Budget {
	b := &Budget{start: start}
	b.limit.Store(-1)
	return b
}

// SetLimit sets the limit from now on and returns the one before; a negative one only asks.
// Of what is in use beyond it, rings that streams of links do not need are taken back within
// seconds.
func (b *Budget) SetLimit(limit int64) int64 {
	was := b.limit.Load()
	if limit >= 0 {
		was = b.limit.Swap(limit)
	}
	if was < 0 {
		return b.start()
	}
	return was
}

// InUse returns how many bytes are taken.
func (b *Budget) InUse() int64 { return b.used.Load() }

// bound is how much may be in use after something was taken for u.
func (b *Budget) bound(u Use) int64 {
	limit := b.SetLimit(-1)
	switch u {
	case ForGrowth:
		limit -= limit / 8
	case ForPlace:
		limit -= limit / 16
	}
	return limit
}

// Take takes n bytes for u, or says why not: the error matches verbs.ErrNoMemory. A nil Budget
// is unbounded. It may block, as Slabs give back what they keep before anything is refused.
func (b *Budget) Take(n int, u Use) error {
	if b == nil {
		return nil
	}
	for {
		used := b.used.Load()
		if int64(n) > b.bound(u)-used {
			if b.reclaim(used) {
				continue
			}
			now := time.Now()
			b.refused.Store(&now)
			return fmt.Errorf("%w: %d bytes more would exceed the process's limit of %d, of which %d are in use (raise it with rdmanet.SetMemoryLimit, or use smaller rings)",
				verbs.ErrNoMemory, n, b.SetLimit(-1), used)
		}
		if b.used.CompareAndSwap(used, used+int64(n)) {
			return nil
		}
	}
}

// Give gives n bytes back.
func (b *Budget) Give(n int) {
	if b != nil {
		b.used.Add(-int64(n))
	}
}

// keeps records whether a Slab keeps memory that nobody uses.
func (b *Budget) keeps(s *Slab, keeps bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !keeps {
		delete(b.keepers, s)
		return
	}
	if b.keepers == nil {
		b.keepers = map[*Slab]struct{}{}
	}
	b.keepers[s] = struct{}{}
}

// beginReclaim is to be called before a Slab gives memory back, and what it returns behind that: who finds too
// little meanwhile waits for it.
func (b *Budget) beginReclaim() (end func()) {
	if b == nil {
		return func() {}
	}
	b.reclaiming.Lock()
	return b.reclaiming.Unlock
}

// reclaim has Slabs give back what nobody uses, and reports whether there is less in use than there was.
func (b *Budget) reclaim(was int64) (some bool) {
	defer b.beginReclaim()()
	some = b.InUse() < was
	b.mu.Lock()
	keepers := slices.Collect(maps.Keys(b.keepers))
	b.mu.Unlock()
	for _, s := range keepers {
		some = s.giveBack() || some
	}
	return some
}

// ample reports whether so little is in use that some of it may be kept for later.
func (b *Budget) ample() bool { return b == nil || b.used.Load() <= b.SetLimit(-1)/4 }

// Short reports whether memory runs out: something was refused lately, or would be.
func (b *Budget) Short() bool {
	if b == nil {
		return false
	}
	at := b.refused.Load()
	return b.used.Load() >= b.bound(ForGrowth) || at != nil && time.Since(*at) < shortTime
}
