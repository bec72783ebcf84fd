package rdmanet

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// DefaultMemoryLimit is the limit of SetMemoryLimit at start, 4 GiB, unless half the memory
// limit of the process's cgroup (memory.max of cgroups(7)) is less.
const DefaultMemoryLimit = 4 << 30

// budget is what all rings and send buffers of the process together may use.
var budget = newMemoryBudget(limitAtStart)

// knownAtStart is what limitAtStart has found, or 0.
var knownAtStart atomic.Int64

// limitAtStart leaves the other half of a container's memory to the program: rings are
// charged to it, and what exceeds its limit is killed, not refused.
func limitAtStart() int64 {
	if limit := knownAtStart.Load(); limit > 0 {
		return limit
	}
	limit, known := limitWithin(memlimit.FromCgroup())
	if known {
		knownAtStart.Store(limit)
	}
	return limit
}

// limitWithin is the limit at start within a cgroup's, and whether it stays: an error may
// say that there is none, or that it could not be read now, as for want of descriptors.
func limitWithin(cgroup uint64, err error) (limit int64, known bool) {
	if err == nil {
		return int64(min(DefaultMemoryLimit, cgroup/2)), true
	}
	for _, none := range []error{memlimit.ErrNoLimit, memlimit.ErrNoCgroup, memlimit.ErrCgroupsNotSupported} {
		known = known || errors.Is(err, none)
	}
	return DefaultMemoryLimit, known
}

// SetMemoryLimit sets how many bytes all receive rings and send buffers of this
// process may use together and returns the limit before; a negative limit only
// asks, math.MaxInt64 means none. At start it is DefaultMemoryLimit, or half the memory
// limit of the process's cgroup if that is less. Over the limit rings stop growing, a Dial fails with
// ErrNoMemory, and clients of a listener wait. Memory in use is not taken back.
// It may be called at any time.
func SetMemoryLimit(limit int64) int64 { return budget.setLimit(limit) }

// MemoryInUse returns the bytes of all receive rings and send buffers of this process.
func MemoryInUse() int64 { return budget.used.Load() }

type memoryBudget struct {
	used  atomic.Int64
	limit atomic.Int64 // negative until it is set
	start func() int64 // the limit until then
}

func newMemoryBudget(start func() int64) *memoryBudget {
	b := &memoryBudget{start: start}
	b.limit.Store(-1)
	return b
}

func (b *memoryBudget) setLimit(limit int64) int64 {
	was := b.limit.Load()
	if limit >= 0 {
		was = b.limit.Swap(limit)
	}
	if was < 0 {
		return b.start()
	}
	return was
}

// reserve takes n bytes or fails with ErrNoMemory.
func (b *memoryBudget) reserve(n int) error {
	for {
		used, limit := b.used.Load(), b.setLimit(-1)
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
