package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestFixesOfErrors(t *testing.T) {
	library := &verbs.LibraryError{Library: "librdmacm.so.1", Package: "librdmacm1", Err: os.ErrNotExist}
	low := withRoCE.with(files{"proc/self/limits": limits("65536", "unlimited", "1024", "1024")})
	for _, tt := range []struct {
		name  string
		files files
		err   error
		want  string
	}{
		{"library", withRoCE, fmt.Errorf("dial: %w", library), "apt-get install ibverbs-providers librdmacm1"},
		{"descriptors", low, fmt.Errorf("%w: socket: %w", verbs.ErrNoMemory, syscall.EMFILE), "sudo prlimit --pid $$ --nofile=65536"},
		{"seccomp", low, fmt.Errorf("%w: memfd_create: %w", verbs.ErrNoMemory, syscall.EPERM), "docker run --security-opt seccomp=unconfined IMAGE"},
		{"locked memory", low, fmt.Errorf("%w: ibv_reg_mr: %w", verbs.ErrNoMemory, syscall.ENOMEM), "ulimit -l unlimited"},
		{"memory", withRoCE, verbs.ErrNoMemory, "ps -eo pid,rss,comm --sort -rss | head # and end what takes the most"},
		{"memory that may be locked", low.with(files{"proc/self/status": asRoot}), verbs.ErrNoMemory, "ps -eo pid,rss,comm --sort -rss | head # and end what takes the most"},
		{"permission", withRoCE, os.NewSyscallError("open", syscall.EACCES), "chmod a+rw /dev/infiniband/*"},
		{"container", withRoCE.with(files{"run/.containerenv": ""}), os.NewSyscallError("open", syscall.EPERM), withDevices},
		{"no /proc", withRoCE.without("proc"), os.NewSyscallError("connect", syscall.ECONNREFUSED), "mount -t proc proc /proc"},
		{"anything else", withRoCE, errors.New("it is broken"), "dmesg | tail"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := fakeHost(tt.files)
			assert.Equal(t, tt.want, h.fix(tt.err))
		})
	}
}
