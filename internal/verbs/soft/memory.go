//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/object"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// memory is verbs.Memory: a memfd, since any of it may be registered for a peer.
type memory struct {
	ctx   *devContext
	fd    int
	data  []byte       // nil when it is closed
	users object.Users // MRs that cover it

	mu        sync.Mutex
	committed int
}

func newMemory(ctx *devContext, size, committed int) (*memory, error) {
	if err := driver.CheckMemory(size, committed); err != nil {
		return nil, err
	}
	size = shm.PageUp(size)
	committed = shm.PageUp(committed)
	fd, data, err := shm.New("rdma-soft-memory", size, committed, false)
	if err != nil {
		return nil, err
	}
	m := &memory{ctx: ctx, fd: fd, data: data, committed: committed}
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
	n = shm.PageUp(n)
	if n <= m.committed {
		return nil
	}
	if err := shm.Commit(m.fd, m.committed, n-m.committed); err != nil {
		return err
	}
	m.committed = n
	return nil
}

func (m *memory) Close() error {
	if err := m.ctx.mems.Close(m, &m.users); err != nil {
		return err
	}
	m.ctx.users.Release()
	m.mu.Lock()
	defer m.mu.Unlock()
	err := shm.Unmap(m.data)
	m.data = nil
	unix.Close(m.fd)
	return os.NewSyscallError("munmap", err)
}
