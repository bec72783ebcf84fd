package rdmanet

import (
	"fmt"
	"math"
	"sync/atomic"
)

// DefaultMemoryLimit is the limit of SetMemoryLimit at start: 4 GiB.
const DefaultMemoryLimit = 4 << 30

// budget is what all rings and send buffers of the process together may use.
var budget = newMemoryBudget(DefaultMemoryLimit)

// SetMemoryLimit sets how many bytes all receive rings and send buffers of this
// process may use together and returns the limit before; a negative limit only
// asks, math.MaxInt64 means none. Over the limit rings stop growing, a Dial fails with
// ErrNoMemory, and clients of a listener wait. Memory in use is not taken back.
// It may be called at any time.
func SetMemoryLimit(limit int64) int64 { return budget.setLimit(limit) }

// MemoryInUse returns the bytes of all receive rings and send buffers of this process.
func MemoryInUse() int64 { return budget.used.Load() }

type memoryBudget struct{ used, limit atomic.Int64 }

func newMemoryBudget(limit int64) *memoryBudget {
	b := new(memoryBudget)
	b.limit.Store(limit)
	return b
}

func (b *memoryBudget) setLimit(limit int64) int64 {
	if limit < 0 {
		return b.limit.Load()
	}
	return b.limit.Swap(limit)
}

// reserve takes n bytes or fails with ErrNoMemory.
func (b *memoryBudget) reserve(n int) error {
	for {
		used, limit := b.used.Load(), b.limit.Load()
		if int64(n) > math.MaxInt64-used || used+int64(n) > limit {
			return fmt.Errorf("%w: %d bytes more would exceed the process's limit of %d, of which %d are in use; raise it with rdmanet.SetMemoryLimit or use smaller rings",
				ErrNoMemory, n, limit, used)
		}
		if b.used.CompareAndSwap(used, used+int64(n)) {
			return nil
		}
	}
}

func (b *memoryBudget) release(n int) { b.used.Add(-int64(n)) }
