package main

import (
	"fmt"

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
	limit := h.cgroupRoom()
	if limit == nil {
		return []check{t.ok("%s", what)}
	}
	lanes := h.lanes(true)
	left, take := int64(limit.left), int64(lanes*n)*perLane
	if left < take {
		return []check{t.fail(h.moreMemory(), "%s, but the cgroup leaves %s: %s take %s, %s for each lane",
			what, console.Size(left), to(n, lanes), console.Size(take), console.Size(perLane))}
	}
	return []check{t.ok("%s; the cgroup leaves %s", what, console.Size(left))}
}

// cgroupRoom is the nearest limit of memory that the cgroups of this process have, nil if there is none.
func (h *host) cgroupRoom() (nearest *cgroupLimit) {
	for _, l := range h.cgroupLimits(&memoryController) {
		if nearest == nil || l.left < nearest.left {
			nearest = &l
		}
	}
	return nearest
}

// moreMemory is the line that gives this process more memory.
func (h *host) moreMemory() string {
	if h.container() {
		return "docker update --memory 4g --memory-swap 4g CONTAINER"
	}
	if limit := h.cgroupRoom(); limit != nil {
		return limit.lift()
	}
	return "ps -eo pid,rss,comm --sort -rss | head # and end what takes the most"
}
