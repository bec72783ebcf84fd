//go:build linux && (amd64 || arm64)

package shm

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageSize is the unit in which memory is mapped.
var PageSize = os.Getpagesize()

// WantSeals are the seals without which no memory of a peer is mapped: a file
// that shrinks turns every access into SIGBUS.
const WantSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// PageUp rounds n up to whole pages.
func PageUp(n int) int { return (n + PageSize - 1) &^ (PageSize - 1) }

// New makes a memfd of size bytes, whole pages, whose first committed bytes
// are backed, maps it and seals its size. Without more seals to come, peers cannot
// add any either, which would take our own rights away.
func New(name string, size, committed int, more bool) (fd int, data []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3 has no MFD_NOEXEC_SEAL
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, nil, NoMemory("memfd_create", size, err)
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
		return fd, nil, NoMemory("ftruncate", size, err)
	}
	if committed > 0 {
		if err = Commit(fd, 0, committed); err != nil {
			return fd, nil, err
		}
	}
	seals := WantSeals
	if !more {
		seals |= unix.F_SEAL_SEAL
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fd, nil, os.NewSyscallError("fcntl", err)
	}
	data, err = mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return fd, nil, NoMemory("mmap", size, err)
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

// Unmap ends a mapping that New or MapPeer has made.
func Unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// commitPiece is what is asked of the kernel at once: before Linux 6.11 a signal undoes all that a call
// has done.
const commitPiece = 4 << 20

// plausible is the size from which on it is asked whether the machine has as much.
const plausible = 64 << 20

// Commit backs a range with memory now, so that touching it cannot be SIGBUS later. Where it fails, what was backed
// stays: peers may have written there.
func Commit(fd, off, n int) error {
	// The kernel takes page after page for a request that is larger than the
	// machine, until somebody is killed for it.
	if n >= plausible {
		var info unix.Sysinfo_t
		if unix.Sysinfo(&info) == nil && uint64(n) > (info.Totalram+info.Totalswap)*uint64(info.Unit) {
			return NoMemory("fallocate", n, unix.ENOMEM)
		}
	}
	for done := 0; done < n; {
		size := min(n-done, commitPiece)
		switch err := unix.Fallocate(fd, 0, int64(off+done), int64(size)); err {
		case nil:
			done += size
		case unix.EINTR:
		default:
			return NoMemory("fallocate", n, err)
		}
	}
	return nil
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
			return NoMemory("madvise", len(b), err)
		}
	}
}

// CanPopulate reports whether the kernel backs mapped memory when it is asked, as since Linux 5.14.
// Where it cannot, owners back everything from the beginning, and have no CapODP.
var CanPopulate = sync.OnceValue(func() bool {
	b, err := unix.Mmap(-1, 0, PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	defer unix.Munmap(b)
	return unix.Madvise(b, unix.MADV_POPULATE_WRITE) == nil
})
