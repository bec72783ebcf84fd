package main

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A controller of cgroups bounds something. Its files are called otherwise in version 1, where each controller has a
// hierarchy of its own (cgroups(7)).
type controller struct {
	name   string
	v2, v1 controllerFiles
}

// controllerFiles are the names of the limit and of what is in use, and what is written to the first to have no limit.
type controllerFiles struct{ most, used, none string }

var (
	memoryController = controller{
		"memory", controllerFiles{"memory.max", "memory.current", "max"},
		controllerFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "-1"},
	}
	pidsController = controller{
		"pids", controllerFiles{"pids.max", "pids.current", "max"},
		controllerFiles{"pids.max", "pids.current", "max"},
	}
)

// noLimit is more than anybody sets: version 1 has such a number where there is no limit of memory.
const noLimit = 1 << 62

// A cgroupLimit is a limit of the cgroup of this process, or of one above it.
type cgroupLimit struct {
	left uint64
	file string
	none string // ends it when it is written there
}

func (l *cgroupLimit) lift() string { return fmt.Sprintf("echo %s | sudo tee %s", l.none, l.file) }

// cgroupLimits are those of a controller, from the cgroup of this process upwards.
func (h *host) cgroupLimits(c *controller) (limits []cgroupLimit) {
	files, mount, dir := c.v2, "sys/fs/cgroup", h.cgroup("")
	if own := h.cgroup(c.name); own != "" {
		files = c.v1
		mount, dir = h.cgroupMount(c.name, own)
	}
	for ; dir != ""; dir = path.Dir(dir) {
		file := path.Join(mount, dir, files.most)
		most, err := strconv.ParseUint(h.read(file), 10, 64) // "max" is no number
		if err == nil && most < noLimit {
			used, _ := strconv.ParseUint(h.read(path.Join(mount, dir, files.used)), 10, 64)
			limits = append(limits, cgroupLimit{most - min(used, most), "/" + file, files.none})
		}
		if dir == "/" {
			break
		}
	}
	return limits
}

// cgroup is the cgroup of this process in the hierarchy of a controller, of version 2 for "", or "" if there is none.
func (h *host) cgroup(controller string) string {
	for line := range strings.Lines(h.read("proc/self/cgroup")) { // number:controllers:directory
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return path.Clean("/" + f[2])
		}
	}
	return ""
}

// cgroupMount is where the hierarchy of a controller of version 1 is mounted, and where in it a cgroup is: a
// container may see its own part alone (proc_pid_mountinfo(5)).
func (h *host) cgroupMount(controller, cgroup string) (mount, dir string) {
	for line := range strings.Lines(h.read("proc/self/mountinfo")) {
		before, after, _ := strings.Cut(line, " - ")
		f, fs := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(fs) < 3 || fs[0] != "cgroup" || !slices.Contains(strings.Split(fs[2], ","), controller) {
			continue
		}
		dir, below := strings.CutPrefix(cgroup+"/", strings.TrimSuffix(f[3], "/")+"/")
		if !below { // of another container, or above what is seen here
			dir = ""
		}
		return strings.TrimPrefix(f[4], "/"), path.Clean("/" + dir)
	}
	return path.Join("sys/fs/cgroup", controller), cgroup
}
