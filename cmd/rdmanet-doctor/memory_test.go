package main

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestSharedMemory(t *testing.T) {
	h := roceHost()
	assert.Equal(t, check{"shared memory", "", statusOK, "a sealed memfd can be made and mapped; /dev/shm has 1 GiB free", ""}, one(t, h.checkMemory(100)))
	h.free = func(string) (int64, error) { return 0, errors.ErrUnsupported }
	assert.Equal(t, "a sealed memfd can be made and mapped", one(t, h.checkMemory(100)).Detail)
}

func TestSharedMemoryThatIsRefused(t *testing.T) {
	noMemory := func(call string, errno syscall.Errno) error {
		return fmt.Errorf("%w: %s: %w", verbs.ErrNoMemory, call, errno)
	}
	tight := withRoCE.with(files{"sys/fs/cgroup/user.slice/memory.max": "1100000"})
	for _, tt := range []struct {
		name  string
		files files
		err   error
		fix   string
	}{
		{"seccomp", withRoCE, noMemory("memfd_create", syscall.EPERM), "docker run --security-opt seccomp=unconfined IMAGE"},
		{"old sandbox", withRoCE, noMemory("memfd_create", syscall.ENOSYS), "docker run --security-opt seccomp=unconfined IMAGE"},
		{"security module", withRoCE, noMemory("memfd_create", syscall.EACCES), "docker run --security-opt seccomp=unconfined IMAGE"},
		{"size of files", withRoCE, noMemory("ftruncate", syscall.EFBIG), "ulimit -f unlimited"},
		{"descriptors", withRoCE, noMemory("memfd_create", syscall.EMFILE), "sudo prlimit --pid $$ --nofile=65536"},
		{"memory", withRoCE, noMemory("fallocate", syscall.ENOSPC), "ps -eo pid,rss,comm --sort -rss | head # and end what takes the most"},
		{"cgroup", tight, noMemory("fallocate", syscall.ENOMEM), "echo max | sudo tee /sys/fs/cgroup/user.slice/memory.max"},
		{"container", tight.with(files{".dockerenv": ""}), noMemory("fallocate", syscall.ENOMEM), "docker update --memory 4g --memory-swap 4g CONTAINER"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := fakeHost(tt.files)
			h.memory = func() error { return tt.err }
			c := one(t, h.checkMemory(100))
			assert.Equal(t, statusFail, c.Status)
			assert.Equal(t, tt.fix, c.Fix)
		})
	}
}

func TestMemoryOfTheCgroup(t *testing.T) {
	const mib = 1 << 20
	limit := func(max, current int) files {
		return withRoCE.with(files{
			"sys/fs/cgroup/user.slice/memory.max":     fmt.Sprint(max),
			"sys/fs/cgroup/user.slice/memory.current": fmt.Sprint(current),
		})
	}
	h := fakeHost(limit(200*mib, 40*mib))
	h.maxProcs = 4 // so that there are two lanes within the host
	c := one(t, h.checkMemory(100))
	assert.Equal(t, statusOK, c.Status)
	assert.Contains(t, c.Detail, "the cgroup leaves 160 MiB")

	h = fakeHost(limit(100*mib, 40*mib))
	h.maxProcs = 4
	c = one(t, h.checkMemory(100))
	assert.Equal(t, statusFail, c.Status)
	assert.Contains(t, c.Detail, "the cgroup leaves 60 MiB: connections to 100 processes, up to 2 lanes for each, take 117 MiB, 600 KiB for each lane")
	assert.Equal(t, "echo max | sudo tee /sys/fs/cgroup/user.slice/memory.max", c.Fix)

	h = fakeHost(limit(4*mib, 5*mib))
	assert.Contains(t, one(t, h.checkMemory(100)).Detail, "leaves 0 B")

	// The tightest cgroup on the way up counts.
	nested := limit(8*mib, 4*mib).with(files{
		"proc/self/cgroup": "12:cpu,cpuacct:/old\n0::/user.slice/session",
		"sys/fs/cgroup/user.slice/session/memory.max":     "max",
		"sys/fs/cgroup/user.slice/session/memory.current": "1",
		"sys/fs/cgroup/memory.max":                        fmt.Sprint(100 * mib),
		"sys/fs/cgroup/memory.current":                    fmt.Sprint(10 * mib),
	})
	h = fakeHost(nested)
	nearest := h.cgroupRoom()
	assert.EqualValues(t, 4*mib, nearest.left)
	assert.Equal(t, "/sys/fs/cgroup/user.slice/memory.max", nearest.file)
	h = fakeHost(nested.without("sys/fs/cgroup/user.slice"))
	assert.Equal(t, "/sys/fs/cgroup/memory.max", h.cgroupRoom().file)
	h = fakeHost(nested.without("proc/self/cgroup"))
	assert.Nil(t, h.cgroupRoom())
}
