//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/verbs"
)

var pageSize = os.Getpagesize()

// pageUp rounds n up to whole pages.
func pageUp(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// memory is verbs.Memory: an anonymous mapping. The kernel backs it when it is
// touched or registered, and a registration backs all that it covers, committed
// or not.
type memory struct {
	ctx   *devContext
	data  []byte       // nil when it is closed
	users object.Users // MRs that cover it

	mu        sync.Mutex
	committed int
}

func newMemory(ctx *devContext, size, committed int) (*memory, error) {
	if err := driver.CheckMemory(size, committed); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(-1, 0, pageUp(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%w: mmap of %d bytes: %w", verbs.ErrNoMemory, size, err)
	}
	// A device writes into the page it was told of; a child that shared it until
	// the first write would take that page from us.
	if err := unix.Madvise(data, unix.MADV_DONTFORK); err != nil {
		_ = unix.Munmap(data)
		return nil, os.NewSyscallError("madvise", err)
	}
	m := &memory{ctx: ctx, data: data, committed: pageUp(committed)}
	ctx.mems.Add(m)
	return m, nil
}

func (m *memory) Bytes() []byte { return m.data }

func (m *memory) Committed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed
}

func (m *memory) Commit(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return verbs.ErrClosed
	}
	if err := driver.CheckCommit(n, len(m.data)); err != nil {
		return err
	}
	m.committed = max(m.committed, pageUp(n))
	return nil
}

// Close fails while an MR covers the memory: the device would go on writing into pages that the
// process has no more.
func (m *memory) Close() error {
	if err := m.ctx.mems.Close(m, &m.users); err != nil {
		return err
	}
	m.ctx.users.Release()
	m.mu.Lock()
	defer m.mu.Unlock()
	err := unix.Munmap(m.data)
	m.data = nil
	return os.NewSyscallError("munmap", err)
}
