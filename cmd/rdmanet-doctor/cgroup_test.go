package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Hosts whose controllers have hierarchies of version 1, each its own, beside which there may be one of version 2
// without them.
func TestCgroupsOfVersion1(t *testing.T) {
	const (
		memoryMount = "/sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory"
		pidsMount   = "/sys/fs/cgroup/pids rw,nosuid - cgroup cgroup rw,pids"
		unlimited   = "9223372036854771712"
	)
	v1 := withRoCE.without("sys/fs/cgroup/user.slice").with(files{
		"proc/self/cgroup": "12:cpu,cpuacct:/old\n8:pids:/slice\n4:memory:/slice/job\n1:name=systemd:/\n0::/",
		"proc/self/mountinfo": "22 27 0:21 / /proc rw - proc proc rw\n30 27 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
			"31 27 0:27 / " + memoryMount + "\n32 27 0:28 / " + pidsMount,
		"sys/fs/cgroup/memory/slice/job/memory.limit_in_bytes": unlimited,
		"sys/fs/cgroup/memory/slice/memory.limit_in_bytes":     "1000",
		"sys/fs/cgroup/memory/slice/memory.usage_in_bytes":     "400",
		"sys/fs/cgroup/memory/memory.limit_in_bytes":           unlimited,
		"sys/fs/cgroup/pids/slice/pids.max":                    "100",
		"sys/fs/cgroup/pids/slice/pids.current":                "30",
	})
	// A container sees its own part of them, which is all that is mounted there, by the names of the host.
	container := v1.without("sys/fs/cgroup/memory").with(files{
		"proc/self/cgroup":                               "4:memory:/docker/abc/job",
		"proc/self/mountinfo":                            "31 27 0:27 /docker/abc " + memoryMount,
		"sys/fs/cgroup/memory/memory.limit_in_bytes":     "1000",
		"sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1",
	})
	for name, tt := range map[string]struct {
		files      files
		controller *controller
		want       []cgroupLimit
	}{
		"memory":    {v1, &memoryController, []cgroupLimit{{600, "/sys/fs/cgroup/memory/slice/memory.limit_in_bytes", "-1"}}},
		"pids":      {v1, &pidsController, []cgroupLimit{{70, "/sys/fs/cgroup/pids/slice/pids.max", "max"}}},
		"container": {container, &memoryController, []cgroupLimit{{1000, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "-1"}}},
		"two limits": {
			container.with(files{"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "5"}), &memoryController,
			[]cgroupLimit{{4, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "-1"}, {1000, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "-1"}},
		},
		"a name that begins alike": {
			container.with(files{"proc/self/cgroup": "4:memory:/docker/abcd/job"}), &memoryController,
			[]cgroupLimit{{1000, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "-1"}},
		},
		"mounted elsewhere": {
			container.with(files{
				"proc/self/mountinfo":          "31 27 0:27 /docker/abc /cg rw - cgroup cgroup rw,freezer,memory",
				"cg/job/memory.limit_in_bytes": "7",
				"cg/job/memory.usage_in_bytes": "9",
				"cg/memory.limit_in_bytes":     unlimited,
			}), &memoryController, []cgroupLimit{{0, "/cg/job/memory.limit_in_bytes", "-1"}},
		},
		"mounts not seen": {v1.without("proc/self/mountinfo"), &memoryController, []cgroupLimit{{600, "/sys/fs/cgroup/memory/slice/memory.limit_in_bytes", "-1"}}},
		"none":            {v1.without("sys/fs/cgroup"), &memoryController, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(tt.files)
			assert.Equal(t, tt.want, h.cgroupLimits(tt.controller))
		})
	}
	h := fakeHost(v1)
	assert.Equal(t, "echo -1 | sudo tee /sys/fs/cgroup/memory/slice/memory.limit_in_bytes", h.moreMemory())
}
