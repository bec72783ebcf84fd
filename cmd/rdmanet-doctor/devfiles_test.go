package main

import (
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeviceFilesCanBeOpened(t *testing.T) {
	h := roceHost()
	var opened []string
	h.open = func(path string) error { opened = append(opened, path); return nil }
	checks := h.checkDeviceFiles("")
	require.Len(t, checks, 2)
	assert.Equal(t, check{"device files", "/dev/infiniband/uverbs0", statusOK, "of rxe0, can be opened", ""}, checks[0])
	assert.Equal(t, "/dev/infiniband/rdma_cm", checks[1].Subject)
	assert.Equal(t, []string{"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"}, opened)
	assert.Len(t, h.checkDeviceFiles("rxe0"), 2)
	assert.Empty(t, h.checkDeviceFiles("soft0"), "another device's file is nobody's business")
}

func TestDeviceFilesOfNoDevice(t *testing.T) {
	h := fakeHost(plain)
	assert.Empty(t, h.checkDeviceFiles(""))
	h = fakeHost(withRoCE.without("sys/class/infiniband"))
	assert.Empty(t, h.checkDeviceFiles(""), "the device of another network namespace cannot be opened")
}

func TestDeviceFileThatCannotBeOpened(t *testing.T) {
	container := withRoCE.with(files{".dockerenv": ""})
	for _, tt := range []struct {
		name  string
		files files
		err   error
		fixes [2]string
	}{
		{"missing", withRoCE, syscall.ENOENT, [2]string{
			"mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs0 c 231 192",
			"mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/rdma_cm c 10 58",
		}},
		{"missing in a container", container, syscall.ENOENT, [2]string{withDevices, withDevices}},
		{"not allowed", withRoCE, syscall.EACCES, [2]string{"chmod a+rw /dev/infiniband/uverbs0", "chmod a+rw /dev/infiniband/rdma_cm"}},
		{"not allowed to the container", container, syscall.EPERM, [2]string{withDevices, withDevices}},
		{"out of descriptors", withRoCE, syscall.EMFILE, [2]string{"sudo prlimit --pid $$ --nofile=65536", "sudo prlimit --pid $$ --nofile=65536"}},
		{"broken", withRoCE, syscall.ENXIO, [2]string{"dmesg | tail", "dmesg | tail"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := fakeHost(tt.files)
			h.open = func(path string) error { return &fs.PathError{Op: "open", Path: path, Err: tt.err} }
			checks := h.checkDeviceFiles("")
			require.Len(t, checks, 2)
			for i, c := range checks {
				assert.Equal(t, statusFail, c.Status)
				assert.Equal(t, tt.fixes[i], c.Fix)
			}
		})
	}
	assert.ErrorIs(t, syscall.EPERM, os.ErrPermission, "both kinds are")
}
