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
	by := fmt.Sprintf("the user may have %d processes and threads together (ulimit -u)", l.soft)
	has := h.userThreads()
	if has > 0 {
		by += fmt.Sprintf(" and has %d", has)
	}
	return bound{l.soft - min(has, l.soft), by, h.raise(nproc, "65536")}
}

// userThreads is how many threads all processes of the user have, as far as they are to be seen: those
// of other containers count as well and are not.
func (h *host) userThreads() (n uint64) {
	user := h.statusField("self", "Uid:")
	for _, pid := range h.list("proc") {
		if _, err := strconv.Atoi(pid); err != nil || user == "" || h.statusField(pid, "Uid:") != user {
			continue
		}
		threads, _ := strconv.ParseUint(h.statusField(pid, "Threads:"), 10, 64) // it may have ended
		n += threads
	}
	return n
}

// statusField is the first word behind a name in the status of a process: of Uid: the real one, for which
// RLIMIT_NPROC counts.
func (h *host) statusField(pid, name string) string {
	for line := range strings.Lines(h.read(path.Join("proc", pid, "status"))) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				return f[0]
			}
		}
	}
	return ""
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
	for _, l := range h.cgroupLimits(&pidsController) {
		fix := l.lift()
		if h.container() {
			fix = "docker update --pids-limit -1 CONTAINER"
		}
		bounds = append(bounds, bound{l.left, fmt.Sprintf("the cgroup has room for %d more threads (%s)", l.left, l.file), fix})
	}
	return bounds
}
