package rdmanet

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
)

// DefaultMemoryLimit is the limit of SetMemoryLimit at start, 4 GiB, unless half the memory
// limit of the process's cgroup (memory.max of cgroups(7)) is less.
const DefaultMemoryLimit = 4 << 30

// budget is what all rings and send buffers of the process together may use.
var budget = memory.NewBudget(limitAtStart)

// knownAtStart is what limitAtStart has found, or 0; findingAtStart is held while it looks.
var (
	knownAtStart   atomic.Int64
	findingAtStart sync.Mutex
)

// limitAtStart leaves the other half of a container's memory to the program: rings are
// charged to it, and what exceeds its limit is killed, not refused.
func limitAtStart() int64 {
	if limit := knownAtStart.Load(); limit > 0 {
		return limit
	}
	findingAtStart.Lock()
	defer findingAtStart.Unlock()
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
// say that there is none, or that it could not be read now, as for lack of descriptors.
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
// limit of the process's cgroup if that is less. What a lane over a network takes for itself, 264
// KiB at each end, does not count. Over the limit rings stop growing, a Dial fails with
// ErrNoMemory, and clients of a listener wait. Large rings that are not used are taken
// back first.
// It may be called at any time.
func SetMemoryLimit(limit int64) int64 { return budget.SetLimit(limit) }

// MemoryInUse returns the bytes of all receive rings and send buffers of this process.
func MemoryInUse() int64 { return budget.InUse() }
