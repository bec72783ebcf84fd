package rdmanet

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// pinnedMemory is all memory of a Conn that the application or the device may be
// looking at: the receive ring and the send blocks. It is unmapped when the verbs
// objects are destroyed and the application holds no slice of it any more.
//
// It refers to nothing else of the Conn, so that a cleanup of the Conn can own it.
type pinnedMemory struct {
	refs    atomic.Int32 // one for the verbs objects, one for each pin held
	peek    pin          // held from Peek to Discard
	reserve pin          // held from Reserve to Commit

	mu      sync.Mutex
	mapped  []verbs.Memory
	charged int // bytes taken from the budget
}

func newPinnedMemory() *pinnedMemory {
	m := new(pinnedMemory)
	m.refs.Store(1)
	return m
}

// alloc maps size bytes of which granted may come into use, which are charged, and
// committed are backed at once.
func (m *pinnedMemory) alloc(ctx verbs.Context, size, granted, committed int) (verbs.Memory, error) {
	return m.allocBy(ctx.AllocMemory, size, granted, committed)
}

// allocQueue is alloc of what the peer of a QP of that many receives writes.
func (m *pinnedMemory) allocQueue(ctx verbs.Context, size, granted, committed, receives int) (verbs.Memory, error) {
	q, ok := ctx.(verbs.QueueMemoryAllocator)
	if !ok {
		return m.alloc(ctx, size, granted, committed)
	}
	return m.allocBy(func(size, committed int) (verbs.Memory, error) {
		return q.AllocQueueMemory(size, committed, receives)
	}, size, granted, committed)
}

func (m *pinnedMemory) allocBy(alloc func(size, committed int) (verbs.Memory, error), size, granted, committed int) (verbs.Memory, error) {
	if err := m.charge(granted); err != nil {
		return nil, err
	}
	memory, err := alloc(size, committed)
	if err != nil {
		m.refund(granted)
		return nil, err
	}
	m.mu.Lock()
	m.mapped = append(m.mapped, memory)
	m.mu.Unlock()
	return memory, nil
}

// free takes back an alloc that nobody has used.
func (m *pinnedMemory) free(memory verbs.Memory, granted int) error {
	m.mu.Lock()
	m.mapped = slices.DeleteFunc(m.mapped, func(o verbs.Memory) bool { return o == memory })
	m.mu.Unlock()
	m.refund(granted)
	return memory.Close()
}

// grant charges what memory, of which granted bytes are in use, is to have more, up to
// n bytes, and backs that unless the device does so on demand.
func (m *pinnedMemory) grant(memory verbs.Memory, granted, n int, onDemand bool) error {
	if err := m.charge(n - granted); err != nil {
		return err
	}
	if onDemand {
		return nil
	}
	if err := memory.Commit(n); err != nil {
		m.refund(n - granted)
		return err
	}
	return nil
}

func (m *pinnedMemory) charge(n int) error {
	if err := budget.Take(n); err != nil {
		return err
	}
	m.mu.Lock()
	m.charged += n
	m.mu.Unlock()
	return nil
}

func (m *pinnedMemory) refund(n int) {
	m.mu.Lock()
	m.charged -= n
	m.mu.Unlock()
	budget.Give(n)
}

// bytes is how much memory there is.
func (m *pinnedMemory) bytes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.charged
}

// release drops a hold; the last one unmaps.
func (m *pinnedMemory) release() error {
	if m.refs.Add(-1) != 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	budget.Give(m.charged)
	var errs []error
	for _, memory := range m.mapped {
		errs = append(errs, memory.Close())
	}
	return errors.Join(errs...)
}

// A pin keeps the memory mapped while the application holds a slice of it.
type pin struct{ held atomic.Bool }

func (p *pin) hold(m *pinnedMemory) {
	// The reference first: a release may come as soon as the pin is seen held.
	m.refs.Add(1)
	if !p.held.CompareAndSwap(false, true) {
		_ = m.release()
	}
}

// release says whether the pin was held.
func (p *pin) release(m *pinnedMemory) bool {
	if !p.held.Load() || !p.held.CompareAndSwap(true, false) {
		return false
	}
	// Unmapping fails only for an argument that was never mapped.
	_ = m.release()
	return true
}

// releasePins drops what the application holds; nobody can use it any more.
func (m *pinnedMemory) releasePins() {
	m.peek.release(m)
	m.reserve.release(m)
}
