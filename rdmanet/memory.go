package rdmanet

import (
	"sync"
	"sync/atomic"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/internal/shortage"
)

// DefaultMemoryLimit is the limit of SetMemoryLimit at start, 4 GiB, unless half the memory
// limit of the process's cgroup (memory.max of cgroups(7)) is less.
const DefaultMemoryLimit = 4 << 30

// budget is what all rings and send buffers of the process together may use.
var budget = memory.NewBudget(limitAtStart.get)

// limitAtStart leaves the other half of a container's memory to the program: rings are
// charged to it, and what exceeds its limit is killed, not refused.
var limitAtStart = startLimit{ask: memlimit.FromCgroup}

// A startLimit is the limit at start, which is looked for when memory is first taken: each ring asks for it.
type startLimit struct {
	ask   func() (cgroup uint64, err error)
	mu    sync.Mutex // held while it looks
	found atomic.Pointer[int64]
}

func (s *startLimit) get() int64 {
	if limit := s.found.Load(); limit != nil {
		return *limit
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit := s.found.Load(); limit != nil {
		return *limit
	}
	limit, known := limitWithin(s.ask())
	if known {
		s.found.Store(&limit)
	}
	return limit
}

// limitWithin is the limit at start within a cgroup's, and whether it stays. An error says that there is
// none, or that it cannot be seen from here, as without a mount of the cgroups; only a shortage, as of
// descriptors, may pass.
func limitWithin(cgroup uint64, err error) (limit int64, known bool) {
	if err == nil {
		return int64(min(DefaultMemoryLimit, cgroup/2)), true
	}
	return DefaultMemoryLimit, !shortage.Is(err)
}

// SetMemoryLimit sets how many bytes all receive rings and send buffers of this
// process may use together and returns the limit before; a negative limit only
// asks, math.MaxInt64 means none. At start it is DefaultMemoryLimit, or half the memory
// limit of the process's cgroup if that is less. What a lane over a network takes for itself, 72
// KiB at each end, does not count. Over the limit rings stop growing, a Dial fails with
// ErrNoMemory, and clients of a listener wait. Large rings that are not used are taken
// back first. It may be called at any time.
func SetMemoryLimit(limit int64) int64 { return budget.SetLimit(limit) }

// MemoryInUse returns the bytes of all receive rings and send buffers of this process.
func MemoryInUse() int64 { return budget.InUse() }
