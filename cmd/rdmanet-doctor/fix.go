package main

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// fix is the line that fixes what the library reported. What each check finds out by
// itself has its line there.
func (h *host) fix(err error) string {
	var library *verbs.LibraryError
	switch {
	case errors.As(err, &library):
		return h.install()
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return h.raise(nofile, "65536")
	case errors.Is(err, syscall.EFBIG):
		return h.raise(fsize, "unlimited")
	case errors.Is(err, verbs.ErrNoMemory) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOSYS)):
		return "docker run --security-opt seccomp=unconfined IMAGE"
	case errors.Is(err, verbs.ErrNoMemory), errors.Is(err, syscall.ENOMEM):
		if l := h.limit(memlock); !l.unlimited() && !h.mayLock() {
			return h.raise(memlock, "unlimited")
		}
		return h.moreMemory()
	case errors.Is(err, fs.ErrPermission):
		if errors.Is(err, syscall.EPERM) && h.container() {
			return withDevices
		}
		return "chmod a+rw " + devInfiniBand + "/*"
	}
	if !h.exists("proc/self") { // by which the software device checks what peers share
		return "mount -t proc proc /proc"
	}
	// The kernel may have said more than its error.
	return "dmesg | tail"
}

// fixDevice is the line for a device that cannot be asked: that for its files, if
// they are the reason.
func (h *host) fixDevice(d rdmanet.Device) string {
	for _, c := range h.checkDeviceFiles(d.Name) {
		if failed(c) {
			return c.Fix
		}
	}
	return h.fix(d.Err)
}
