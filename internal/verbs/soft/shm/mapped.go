//go:build linux && (amd64 || arm64)

package shm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// A peer says how large its MRs are, and they need no memory to be large. Mapped they
// take address space, and a process that has no more of it ends.
const (
	// MaxPeerMapped bounds the bytes of one peer's MRs, and so those of one MR.
	MaxPeerMapped = 1 << 36
	// MaxAllMapped bounds the bytes of all peers. It is half of what a process has at the least.
	MaxAllMapped = 1 << 46
)

// ManyMRs is how many MRs of peers a process maps without care: a quarter of the mappings that the kernel
// allows it by default (vm.max_map_count, proc_sys_vm(5)).
const ManyMRs = 16 << 10

// MappedMRs counts the MRs of peers that are mapped.
var MappedMRs atomic.Int64

// AllMapped counts the bytes of peers' inboxes and MRs that are mapped.
var AllMapped atomic.Int64

// mapCounted is MapPeer of what AllMapped counts.
func mapCounted(fd int, off int64, size int, prot int) (data []byte, err error) {
	if AllMapped.Add(int64(size)) > MaxAllMapped {
		err = NoMemory("mmap", size, unix.ENOMEM)
	} else {
		data, err = MapPeer(fd, off, size, prot)
	}
	if err != nil {
		AllMapped.Add(-int64(size))
	}
	return data, err
}

// MapPeer maps size bytes at off of a descriptor that a peer sent, after checking
// that it is memory that cannot shrink and is at least that large.
func MapPeer(fd int, off int64, size int, prot int) ([]byte, error) {
	total, err := checkSealed(fd)
	if err != nil {
		return nil, err
	}
	if size <= 0 || off < 0 || off > total || int64(size) > total-off || off%int64(PageSize) != 0 {
		return nil, fmt.Errorf("%w: %d bytes at %d of shared memory of %d", verbs.ErrProtocol, size, off, total)
	}
	data, err := mmap(fd, off, size, prot)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("%w: shared memory without the right it is offered with: %w", verbs.ErrProtocol, err)
	}
	if err != nil {
		return nil, NoMemory("mmap", size, err)
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
	if seals&WantSeals != WantSeals {
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
