package main

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
)

// neededThreads is what a program with RDMA connections may come to: one for each
// processor, and those that wait in calls of the libraries, which are bounded.
const neededThreads = 128

var nproc = resource{"Max processes", "-u", "nproc"}

// A bound is how many more threads something allows.
type bound struct {
	left uint64
	by   string // what it is, and where it stands
	mend string
}

// checkThreads compares how many threads may be started with what a program needs. A
// program that gets none ends: Go cannot go on.
func (h *host) checkThreads() check {
	t := topic{name: "threads"}
	nearest := bound{left: math.MaxUint64}
	for _, b := range append(h.cgroupPids(), h.userProcesses(), h.systemThreads()) {
		if b.left < nearest.left {
			nearest = b
		}
	}
	switch {
	case nearest.left == math.MaxUint64:
		return t.ok("no limit")
	case nearest.left < neededThreads:
		return t.fail(nearest.mend, "%s: a program with connections may need %d threads", nearest.by, neededThreads)
	}
	return t.ok("%s", nearest.by)
}

// userProcesses is RLIMIT_NPROC, which counts the threads of all processes of the user.
func (h *host) userProcesses() bound {
	l := h.limit(nproc)
	if l.unlimited() || h.capability(capSysResource) {
		return bound{left: math.MaxUint64}
	}
	return bound{l.soft, fmt.Sprintf("the user may have %d processes and threads together (ulimit -u)", l.soft), h.raise(nproc, "65536")}
}

// systemThreads is what the kernel allows all of the system.
func (h *host) systemThreads() bound {
	most, err := strconv.ParseUint(h.read("proc/sys/kernel/threads-max"), 10, 64)
	if err != nil {
		return bound{left: math.MaxUint64}
	}
	left := most
	if f := strings.Fields(h.read("proc/loadavg")); len(f) >= 4 { // running/all
		if _, all, ok := strings.Cut(f[3], "/"); ok {
			if n, err := strconv.ParseUint(all, 10, 64); err == nil {
				left = most - min(n, most)
			}
		}
	}
	return bound{left, fmt.Sprintf("the system has room for %d more threads (kernel.threads-max)", left), "sudo sysctl -w kernel.threads-max=65536"}
}

// cgroupPids are the bounds of the cgroups of this process.
func (h *host) cgroupPids() (bounds []bound) {
	for dir := h.cgroup(); dir != ""; dir = path.Dir(dir) {
		file := path.Join("sys/fs/cgroup", dir, "pids.max")
		most, err := strconv.ParseUint(h.read(file), 10, 64)
		if err == nil { // "max" is no number
			used, _ := strconv.ParseUint(h.read(path.Join("sys/fs/cgroup", dir, "pids.current")), 10, 64)
			left := most - min(used, most)
			mend := "echo max | sudo tee /" + file
			if h.container() {
				mend = "docker update --pids-limit -1 CONTAINER"
			}
			bounds = append(bounds, bound{left, fmt.Sprintf("the cgroup has room for %d more threads (/%s)", left, file), mend})
		}
		if dir == "/" {
			break
		}
	}
	return bounds
}
