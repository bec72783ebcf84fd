package main

import (
	"fmt"
	"strings"
)

// checkKernelVersion notes what kernels lack that are older than connections would like.
func (h *host) checkKernelVersion() []check {
	t := topic{name: "kernel version"}
	release := h.read("proc/sys/kernel/osrelease")
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil || len(h.kernelDevices()) == 0 {
		return nil
	}
	if major < 5 || major == 5 && minor < 1 {
		return []check{t.note("upgrade to Linux 5.1 or later", "%s: before 5.1 AckTimeout cannot be chosen, and a dead peer may be noticed only after a minute", strings.TrimSpace(release))}
	}
	return []check{t.ok("%s: AckTimeout can be chosen", release)}
}
