package main

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
)

// devShm is where POSIX shared memory is. The memory of the software device is of the
// same kind but is not in there, so that it may be full; a cgroup bounds both.
const devShm = "/dev/shm"

// perLane is the shared memory of one end of a lane on the software device, rounded up: its queues
// and records, and memory for the first rings of its connections.
const perLane = 600 << 10

// checkMemory checks the memory that the software device shares between processes.
func (h *host) checkMemory(n int) []check {
	t := topic{name: "shared memory"}
	if err := h.memory(); err != nil {
		return []check{t.fail(h.fix(err), "the software device gets none: %s", oneLine(err))}
	}
	what := "a sealed memfd can be made and mapped"
	if free, err := h.free(devShm); err == nil {
		what += fmt.Sprintf("; %s has %s free", devShm, console.Size(free))
	}
	left, file := h.cgroupRoom()
	lanes := h.lanes(true)
	take := int64(lanes*n) * perLane
	switch {
	case file == "":
		return []check{t.ok("%s", what)}
	case left < take:
		return []check{t.fail(h.moreMemory(), "%s, but the cgroup leaves %s: %s take %s, %s for each lane",
			what, console.Size(left), to(n, lanes), console.Size(take), console.Size(perLane))}
	}
	return []check{t.ok("%s; the cgroup leaves %s", what, console.Size(left))}
}

// cgroupRoom is how much memory the cgroups of this process still allow it, and the
// file with the limit that is nearest; "" if there is no limit.
func (h *host) cgroupRoom() (left int64, file string) {
	left = math.MaxInt64
	for dir := h.cgroup(); dir != ""; {
		limit, err1 := strconv.ParseInt(h.read(path.Join("sys/fs/cgroup", dir, "memory.max")), 10, 64)
		used, err2 := strconv.ParseInt(h.read(path.Join("sys/fs/cgroup", dir, "memory.current")), 10, 64)
		if err1 == nil && err2 == nil && limit-used < left { // "max" is no number
			left, file = max(limit-used, 0), path.Join("/sys/fs/cgroup", dir, "memory.max")
		}
		if dir == "/" {
			break
		}
		dir = path.Dir(dir)
	}
	return left, file
}

// cgroup is the cgroup of this process, "" without cgroups of version 2.
func (h *host) cgroup() string {
	for line := range strings.Lines(h.read("proc/self/cgroup")) {
		if dir, ok := strings.CutPrefix(line, "0::"); ok {
			return path.Clean("/" + strings.TrimSpace(dir))
		}
	}
	return ""
}

// moreMemory is the line that gives this process more memory.
func (h *host) moreMemory() string {
	_, file := h.cgroupRoom()
	switch {
	case h.container():
		return "docker update --memory 4g --memory-swap 4g CONTAINER"
	case file != "":
		return "echo max | sudo tee " + file
	}
	return "ps -eo pid,rss,comm --sort -rss | head # and end what takes the most"
}
