package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/internal/cli/console"
	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// costs are what one end of a lane takes, which the connections of two processes share; zero is
// unknown.
type costs struct {
	descriptors int
	locked      int64 // bytes of memory that the device locks
}

func (c costs) atLeast(o costs) costs {
	return costs{max(c.descriptors, o.descriptors), max(c.locked, o.locked)}
}

// What it takes where it was not measured: seven descriptors on the software device, which needs
// the most, and on cards the memory of a lane, of its first rings and of its queues.
var usual = costs{descriptors: 7, locked: link.LaneMemory + link.LaneRings + link.LaneQueues}

// ownDescriptors is what a program has open beside its connections.
const ownDescriptors = 32

// A resource is a limit of the process.
type resource struct {
	row    string // its name in /proc/self/limits
	ulimit string // its letter for the shell
	long   string // its name for prlimit and for docker
}

var (
	memlock = resource{"Max locked memory", "-l", "memlock"}
	nofile  = resource{"Max open files", "-n", "nofile"}
	fsize   = resource{"Max file size", "-f", "fsize"}
)

// limit is a limit in the unit of /proc/self/limits.
type limit struct {
	soft, hard uint64
	known      bool
}

func (l limit) unlimited() bool { return l.soft == math.MaxUint64 }

// text is what a check says of the limit, or that there is none.
func (l limit) text(size func(uint64) string, none string) string {
	switch {
	case !l.known:
		return "not known, as /proc/self/limits does not tell it"
	case l.unlimited():
		return none
	}
	return size(l.soft)
}

// limit returns what holds for this process. What is not known limits nobody.
func (h *host) limit(r resource) limit {
	for line := range strings.Lines(h.read("proc/self/limits")) {
		if rest, ok := strings.CutPrefix(line, r.row); ok {
			if f := strings.Fields(rest); len(f) >= 2 {
				return limit{parseLimit(f[0]), parseLimit(f[1]), true}
			}
		}
	}
	return limit{soft: math.MaxUint64, hard: math.MaxUint64}
}

func parseLimit(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return math.MaxUint64 // "unlimited"
	}
	return n
}

// raise is the line that raises a limit, in the shell that starts the program. Who may
// not raise the hard limit needs the help of root.
func (h *host) raise(r resource, to string) string {
	switch {
	case h.container():
		if to == "unlimited" {
			to = "-1"
		}
		return fmt.Sprintf("docker run --ulimit %s=%s IMAGE", r.long, to)
	case h.capability(capSysResource) || h.limit(r).hard == math.MaxUint64:
		return fmt.Sprintf("ulimit %s %s", r.ulimit, to)
	}
	return fmt.Sprintf("sudo prlimit --pid $$ --%s=%s", r.long, to)
}

// checkMemlock compares the memory that may be locked with what the lanes to n processes lock.
func (h *host) checkMemlock(need costs, n int) check {
	t := topic{name: "memlock"}
	l := h.limit(memlock)
	each := need.locked
	if each == 0 {
		each = usual.locked
	}
	lanes := h.lanes(false)
	total := each * int64(lanes*n)
	text := l.text(func(n uint64) string { return console.Size(int64(min(n, math.MaxInt64))) }, "unlimited")
	switch {
	case !h.locks():
		return t.ok("%s; the software device locks no memory", text)
	case l.unlimited(), l.soft >= uint64(total):
		return t.ok("%s; %s lock %s, %s for each lane", text, to(n, lanes), console.Size(total), console.Size(each))
	case h.mayLock():
		return t.ok("%s, but this process may lock as much as it likes (CAP_IPC_LOCK)", text)
	}
	return t.fail(h.raise(memlock, "unlimited"), "%s is too little: %s lock %s, %s for each lane", text, to(n, lanes), console.Size(total), console.Size(each))
}

// locks reports whether there is a device that locks memory.
func (h *host) locks() bool {
	for _, d := range h.devices {
		if d.Transport != verbs.TransportSoftware {
			return true
		}
	}
	return false
}

// checkDescriptors compares the descriptors that may be open with what the lanes to n
// processes take. The soft limit is the one that Go has raised to the hard limit at start.
func (h *host) checkDescriptors(need costs, n int) check {
	t := topic{name: "descriptors"}
	each := need.descriptors
	if each == 0 {
		each = usual.descriptors
	}
	l := h.limit(nofile)
	lanes := h.lanes(!h.locks()) // those of a network are more
	take := each * lanes * n
	total := uint64(take + ownDescriptors)
	if l.soft >= total {
		text := l.text(func(n uint64) string { return strconv.FormatUint(n, 10) }, "no limit")
		return t.ok("%s; %s take %d, %d for each lane", text, to(n, lanes), take, each)
	}
	return t.fail(h.raise(nofile, strconv.FormatUint(max(total, 65536), 10)),
		"%d are too few: %s take %d, %d for each lane", l.soft, to(n, lanes), take, each)
}

// Capabilities, by their numbers in linux/capability.h.
const (
	capIPCLock     = 14
	capSysResource = 24
)

// capability reports whether the process has a capability that counts for the whole
// system, not only inside of a user namespace.
func (h *host) capability(number int) bool {
	if f := strings.Fields(h.read("proc/self/uid_map")); len(f) != 3 || f[0] != "0" || f[1] != "0" || f[2] != "4294967295" {
		return false
	}
	for line := range strings.Lines(h.read("proc/self/status")) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && bits>>number&1 != 0
		}
	}
	return false
}

// mayLock reports whether the limit on locked memory does not hold for this process.
func (h *host) mayLock() bool { return h.capability(capIPCLock) }
