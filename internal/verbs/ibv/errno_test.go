//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		cause error
		text  string
	}{
		{syscall.EINVAL, verbs.ErrInvalid, "invalid argument: ibv_x: invalid argument"},
		{syscall.EBUSY, verbs.ErrBusy, "object still in use: ibv_x: device or resource busy"},
		{syscall.EMFILE, verbs.ErrNoMemory, "cannot allocate RDMA memory: ibv_x: too many open files (raise RLIMIT_NOFILE)"},
		{syscall.EAGAIN, verbs.ErrNoMemory, "cannot allocate RDMA memory: ibv_x: resource temporarily unavailable (the device has no more, or the control group: see its rdma.max)"},
		{syscall.EOPNOTSUPP, verbs.ErrNotSupported, "not supported by this RDMA device: ibv_x: operation not supported"},
		{syscall.EADDRINUSE, syscall.EADDRINUSE, "ibv_x: address already in use"},
		{syscall.EACCES, syscall.EACCES, "ibv_x: permission denied (the process needs read and write access to /dev/infiniband)"},
	} {
		for _, r := range []int32{int32(c.errno), -int32(c.errno)} {
			err := returned("ibv_x", r)
			assert.ErrorIs(t, err, c.cause)
			assert.ErrorIs(t, err, c.errno)
			assert.EqualError(t, err, c.text)
		}
	}
	for fn, text := range map[string]string{
		"rdma_bind_addr":    "(ports below 1024 need CAP_NET_BIND_SERVICE)",
		"rdma_get_cm_event": "(the process has changed its user, groups or capabilities since it first used RDMA)",
	} {
		assert.EqualError(t, failed(fn, syscall.EACCES), fn+": permission denied "+text)
	}
	assert.NoError(t, returned("ibv_x", 0))
	assert.EqualError(t, failed("ibv_x", 0), "ibv_x failed without saying why: input/output error")
}

func TestPostError(t *testing.T) {
	assert.Equal(t, verbs.ErrQueueFull, postError("ibv_post_send", int32(syscall.ENOMEM), 0))
	assert.Equal(t, verbs.ErrQueueFull, postError("ibv_post_send", -int32(syscall.ENOMEM), 0))
	assert.ErrorIs(t, postError("ibv_post_send", -int32(syscall.EINVAL), 0), verbs.ErrInvalid)
	assert.ErrorIs(t, postError("ibv_post_send", -1, syscall.ENOTCONN), syscall.ENOTCONN, "siw's library leaves it in errno")
}

// ENOMEM names the limit and how to raise it, unless there is none.
func TestMemlockHint(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was) })
	low := unix.Rlimit{Cur: min(64<<10, was.Max), Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low); err != nil {
		t.Fatal(err)
	}
	err := failed("ibv_reg_mr", syscall.ENOMEM)
	assert.ErrorIs(t, err, verbs.ErrNoMemory)
	assert.ErrorContains(t, err, "RLIMIT_MEMLOCK is 64 KiB")
	assert.ErrorContains(t, err, "LimitMEMLOCK=infinity")
}

func TestLoad(t *testing.T) {
	err := load("libno-such-thing.so.7", "libno-such-thing7", nil)
	var lib *verbs.LibraryError
	if assert.ErrorAs(t, err, &lib) {
		assert.Equal(t, "libno-such-thing.so.7", lib.Library)
	}
	assert.ErrorIs(t, err, verbs.ErrNoDevice)
	assert.ErrorContains(t, err, "apt-get install libno-such-thing7")

	var addr uintptr
	err = load("libc.so.6", "libc6", []symbol{{"no_such_function", &addr, false}})
	if errors.As(err, &lib) && lib.Library == "libc.so.6" {
		assert.ErrorContains(t, err, "too old")
	}
	if load("libc.so.6", "libc6", nil) == nil {
		assert.NoError(t, load("libc.so.6", "libc6", []symbol{{"no_such_function", &addr, true}}))
		assert.Zero(t, addr)
	}
}
