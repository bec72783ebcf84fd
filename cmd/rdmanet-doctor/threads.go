package main

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/internal/verbs/ibv"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// ownThreads is what Go has beside those of its processors, and what else waits in system calls.
const ownThreads = 16

// neededThreads is what a program with RDMA connections may come to: one for each processor, and
// those that wait in calls of the libraries, which the driver bounds.
func (h *host) neededThreads() int {
	n := ownThreads + h.maxProcs
	var cards, iwarp int
	for _, d := range h.devices {
		switch d.Transport {
		case verbs.TransportSoftware: // it has no calls that wait
			continue
		case verbs.TransportIWARP:
			iwarp = ibv.ThreadsOfIWARP
		}
		cards += ibv.ThreadsOfDevice
	}
	if cards > 0 {
		n += ibv.ThreadsOfCM + cards + iwarp
	}
	return n
}

var nproc = resource{"Max processes", "-u", "nproc"}

// A bound is how many more threads something allows.
type bound struct {
	left uint64
	by   string // what it is, and where it stands
	fix  string
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
	need := h.neededThreads()
	switch {
	case nearest.left == math.MaxUint64:
		return t.ok("no limit")
	case nearest.left < uint64(need):
		return t.fail(nearest.fix, "%s: a program with connections may need %d threads", nearest.by, need)
	}
	return t.ok("%s; a program with connections may need %d", nearest.by, need)
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
			fix := "echo max | sudo tee /" + file
			if h.container() {
				fix = "docker update --pids-limit -1 CONTAINER"
			}
			bounds = append(bounds, bound{left, fmt.Sprintf("the cgroup has room for %d more threads (/%s)", left, file), fix})
		}
		if dir == "/" {
			break
		}
	}
	return bounds
}
