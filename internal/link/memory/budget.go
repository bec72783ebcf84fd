package memory

import (
	"fmt"
	"maps"
	"math"
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

	went    atomic.Uint64 // chunks that were given back
	mu      sync.Mutex
	keepers map[*Slab]struct{} // that have memory which nobody uses
	going   int                // chunks that are being given back, and are waited for
	change  chan struct{}      // closed when there is less in use or going; nil if nobody waits for that
}

// A Use is what memory is taken for.
type Use uint8

// What memory is taken for.
const (
	ForStream Use = iota // opened, or going back to a small ring
	ForPlace             // in store at a dialer
	ForGrowth
)

// comesBack is for how long memory that is being given back is waited for. A peer that has not let go of it
// by then may be stopped.
const comesBack = 200 * time.Millisecond

// shortTime is for how long a refusal has large rings taken back.
const shortTime = 2 * time.Second

// NewBudget returns a Budget whose limit in bytes is what start says, until one is set.
func NewBudget(start func() int64) *Budget {
	b := &Budget{start: start}
	b.limit.Store(-1)
	return b
}

// Unbounded returns a Budget that refuses nothing until a limit is set.
func Unbounded() *Budget { return NewBudget(func() int64 { return math.MaxInt64 }) }

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

// Take takes n bytes for u, or says why not: the error matches verbs.ErrNoMemory. It
// may block, as Slabs give back what they keep before anything is refused, but for comesBack
// at most where that takes a peer.
func (b *Budget) Take(n int, u Use) error {
	for {
		used := b.used.Load()
		if int64(n) > b.bound(u)-used {
			if b.reclaim(func() bool { return int64(n) <= b.bound(u)-b.used.Load() }) {
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(n)
}

// give is Give for who holds mu.
func (b *Budget) give(n int) {
	b.used.Add(-int64(n))
	b.changed()
}

// changed wakes who waits in awaitLess. mu is held.
func (b *Budget) changed() {
	if b.change != nil {
		close(b.change)
		b.change = nil
	}
}

// goes records that a chunk begins to be given back. What it returns is to be called when n bytes have been.
func (b *Budget) goes() (gone func(n int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.going++
	awaited := true
	end := func() {
		if awaited {
			awaited = false
			b.going--
			b.changed()
		}
	}
	late := time.AfterFunc(comesBack, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		end()
	})
	return func(n int) {
		late.Stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		end()
		b.went.Add(1)
		b.give(n)
	}
}

// keeps records whether a Slab keeps memory that nobody uses.
func (b *Budget) keeps(s *Slab, keeps bool) {
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

// reclaim has Slabs give back what nobody uses, waits until enough reports that this will do, or nothing more is
// to be expected, and returns what enough says.
func (b *Budget) reclaim(enough func() bool) bool {
	b.mu.Lock()
	keepers := slices.Collect(maps.Keys(b.keepers))
	b.mu.Unlock()
	for _, s := range keepers {
		s.giveBack()
	}
	late := time.NewTimer(comesBack)
	defer late.Stop()
	for b.awaitLess(enough, late.C) {
	}
	return enough()
}

// reclaimAny is reclaim of who does not know how much is enough: one chunk is worth another try.
func (b *Budget) reclaimAny() bool {
	was := b.went.Load()
	return b.reclaim(func() bool { return b.went.Load() != was })
}

// awaitLess waits until there is less in use or going, or it is late. It returns false if there is enough, or
// no more to be expected.
func (b *Budget) awaitLess(enough func() bool, late <-chan time.Time) bool {
	b.mu.Lock()
	if b.going == 0 || enough() {
		b.mu.Unlock()
		return false
	}
	if b.change == nil {
		b.change = make(chan struct{})
	}
	change := b.change
	b.mu.Unlock()
	select {
	case <-change:
		return true
	case <-late:
		return false
	}
}

// Ample reports whether so little is in use that some of it may be kept for later, or be more than is needed.
func (b *Budget) Ample() bool { return b.used.Load() <= b.SetLimit(-1)/4 }

// Short reports whether memory runs out: something was refused lately, or would be.
func (b *Budget) Short() bool {
	at := b.refused.Load()
	return b.used.Load() >= b.bound(ForGrowth) || at != nil && time.Since(*at) < shortTime
}
