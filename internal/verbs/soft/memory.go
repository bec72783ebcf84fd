//go:build linux && (amd64 || arm64)

package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"golang.org/x/sys/unix"
)

// pageSize is the unit in which memory is mapped.
var pageSize = os.Getpagesize()

// wantSeals are the seals without which no memory of a peer is mapped: a file
// that shrinks turns every access into SIGBUS.
const wantSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// pageUp rounds n up to whole pages.
func pageUp(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// newSealed makes a memfd of size bytes, whole pages, whose first committed bytes
// are backed, maps it and seals its size. Without more seals to come, peers cannot
// add any either, which would take our own rights away.
func newSealed(name string, size, committed int, more bool) (fd int, data []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3 has no MFD_NOEXEC_SEAL
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, nil, noMemory("memfd_create", size, err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	// Other users get a memfd from us or not at all.
	if err = unix.Fchmod(fd, 0o600); err != nil {
		return fd, nil, os.NewSyscallError("fchmod", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		return fd, nil, noMemory("ftruncate", size, err)
	}
	if committed > 0 {
		if err = fallocate(fd, 0, committed); err != nil {
			return fd, nil, err
		}
	}
	seals := wantSeals
	if !more {
		seals |= unix.F_SEAL_SEAL
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fd, nil, os.NewSyscallError("fcntl", err)
	}
	data, err = mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fd, nil, noMemory("mmap", size, err)
	}
	return fd, data, nil
}

// mmap maps a part of a file. unix.Mmap does, too, and keeps a list of what is mapped.
func mmap(fd int, off int64, size, prot int) ([]byte, error) {
	p, err := unix.MmapPtr(fd, off, nil, uintptr(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// munmap undoes mmap.
func munmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// plausible is the size from which on it is asked whether the machine has as much.
const plausible = 64 << 20

// fallocate backs a range with memory now, so that touching it cannot be SIGBUS later.
func fallocate(fd, off, n int) error {
	// The kernel takes page after page for a request that is larger than the
	// machine, until somebody is killed for it.
	if n >= plausible {
		var info unix.Sysinfo_t
		if unix.Sysinfo(&info) == nil && uint64(n) > (info.Totalram+info.Totalswap)*uint64(info.Unit) {
			return noMemory("fallocate", n, unix.ENOMEM)
		}
	}
	for {
		err := unix.Fallocate(fd, 0, int64(off), int64(n))
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return noMemory("fallocate", n, err)
		}
	}
}

// populate backs memory of a peer that is mapped here, so that touching it cannot be
// SIGBUS later.
func populate(b []byte) error {
	for {
		err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
		switch err {
		case nil:
			return nil
		case unix.EINTR, unix.EAGAIN:
		default:
			return noMemory("madvise", len(b), err)
		}
	}
}

// canPopulate reports whether the kernel can do that, which it can since Linux 5.14.
// Where it cannot, owners back everything from the beginning, and have no CapODP.
var canPopulate = sync.OnceValue(func() bool {
	b, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	defer unix.Munmap(b)
	return unix.Madvise(b, unix.MADV_POPULATE_WRITE) == nil
})

func noMemory(call string, size int, err error) error {
	if err == unix.EMFILE || err == unix.ENFILE {
		err := noDescriptor(call, err)
		return verbs.Explain(fmt.Sprintf("no descriptor for %d bytes of shared memory: %v", size, err), verbs.ErrNoMemory, err)
	}
	hint := "free memory or raise the memory limit of the process or its cgroup"
	return fmt.Errorf("%w: %s of %d bytes of shared memory: %w (%s)", verbs.ErrNoMemory, call, size, err, hint)
}

// mapPeer maps size bytes at off of a descriptor that a peer sent, after checking
// that it is memory that cannot shrink and is at least that large.
func mapPeer(fd int, off int64, size int, prot int) ([]byte, error) {
	total, err := checkSealed(fd)
	if err != nil {
		return nil, err
	}
	if size <= 0 || off < 0 || off > total || int64(size) > total-off || off%int64(pageSize) != 0 {
		return nil, fmt.Errorf("%w: %d bytes at %d of shared memory of %d", verbs.ErrProtocol, size, off, total)
	}
	data, err := mmap(fd, off, size, prot)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("%w: shared memory without the right it is offered with: %w", verbs.ErrProtocol, err)
	}
	if err != nil {
		return nil, noMemory("mmap", size, err)
	}
	return data, nil
}

// checkSealed returns the size of a peer's memfd that can neither shrink nor grow. It
// has pages of the common kind: a file of huge pages has seals, too, and a hole that is
// made in it is SIGBUS where no huge page is left.
func checkSealed(fd int) (int64, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: a descriptor that is not a memfd: %w", verbs.ErrProtocol, err)
	}
	if seals&wantSeals != wantSeals {
		return 0, fmt.Errorf("%w: shared memory is not sealed against shrinking and growing", verbs.ErrProtocol)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		return 0, fmt.Errorf("%w: shared memory of huge pages", verbs.ErrProtocol)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return st.Size, nil
}

// memory is verbs.Memory: a memfd, since any of it may be registered for a peer.
type memory struct {
	ctx  *devContext
	fd   int
	data []byte

	mu        sync.Mutex
	committed int
	mrs       int
	closed    bool
}

func checkMemory(size, committed int) error {
	if size <= 0 || committed < 0 || committed > size || size > 1<<46 {
		return fmt.Errorf("%w: memory of %d bytes of which %d are committed", verbs.ErrInvalid, size, committed)
	}
	return nil
}

func newMemory(ctx *devContext, size, committed int) (*memory, error) {
	if err := checkMemory(size, committed); err != nil {
		return nil, err
	}
	size = pageUp(size)
	committed = pageUp(committed)
	fd, data, err := newSealed("rdma-soft-memory", size, committed, false)
	if err != nil {
		return nil, err
	}
	m := &memory{ctx: ctx, fd: fd, data: data, committed: committed}
	ctx.mems.add(m)
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
	if m.closed {
		return verbs.ErrClosed
	}
	if n < 0 || n > len(m.data) {
		return fmt.Errorf("%w: commit of %d bytes in memory of %d", verbs.ErrInvalid, n, len(m.data))
	}
	n = pageUp(n)
	if n <= m.committed {
		return nil
	}
	if err := fallocate(m.fd, m.committed, n-m.committed); err != nil {
		return err
	}
	m.committed = n
	return nil
}

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return verbs.ErrClosed
	}
	if m.mrs > 0 {
		return fmt.Errorf("%w: %d MRs cover the memory", verbs.ErrBusy, m.mrs)
	}
	m.closed = true
	m.ctx.mems.remove(m)
	m.ctx.users.Release()
	return m.free()
}

// free gives the memory itself back.
func (m *memory) free() error {
	err := munmap(m.data)
	m.data = nil
	unix.Close(m.fd)
	return os.NewSyscallError("munmap", err)
}

// hold keeps the memory for an MR; it fails when the memory is closed.
func (m *memory) hold() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return verbs.ErrClosed
	}
	m.mrs++
	return nil
}

func (m *memory) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mrs--
}

// base is the address of the first byte.
func (m *memory) base() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) }

// memories finds the memory that an address belongs to.
type memories struct {
	mu   sync.Mutex
	list []*memory // by address
}

func compareBase(m *memory, addr uintptr) int {
	switch b := m.base(); {
	case b < addr:
		return -1
	case b > addr:
		return 1
	}
	return 0
}

func (s *memories) add(m *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.list, m.base(), compareBase)
	s.list = slices.Insert(s.list, i, m)
}

func (s *memories) remove(m *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := slices.BinarySearchFunc(s.list, m.base(), compareBase); ok {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

// find returns the memory that holds all of buf and buf's place in it, or nil.
func (s *memories) find(buf []byte) (*memory, int) {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := slices.BinarySearchFunc(s.list, addr, compareBase)
	if !ok {
		if i == 0 {
			return nil, 0
		}
		i--
	}
	m := s.list[i]
	off := addr - m.base()
	if off >= uintptr(len(m.data)) || uintptr(len(buf)) > uintptr(len(m.data))-off {
		return nil, 0
	}
	return m, int(off)
}
