package main

import (
	"path"
	"slices"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// checkDaemons looks for the daemons that connections go by: ibacm on InfiniBand and
// iwpmd with iWARP.
func (h *host) checkDaemons() (checks []check) {
	has := func(t verbs.Transport) bool {
		return slices.ContainsFunc(h.devices, func(d rdmanet.Device) bool { return d.Transport == t })
	}
	if has(verbs.TransportIB) {
		t := topic{"daemons", "ibacm"}
		if h.running("ibacm") {
			checks = append(checks, t.ok("runs: dials ask it for paths before the subnet manager"))
		} else {
			checks = append(checks, t.note("systemctl enable --now ibacm", "does not run: each dial asks the subnet manager for a path, which takes long where many dial at once"))
		}
	}
	if has(verbs.TransportIWARP) {
		t := topic{"daemons", "iwpmd"}
		if h.running("iwpmd") {
			checks = append(checks, t.ok("runs: ports of the card are mapped to others than those of TCP"))
		} else {
			checks = append(checks, t.note("systemctl enable --now iwpmd", "does not run, and is needed at both ends: without it a card takes the connections that ask for the same port by TCP"))
		}
	}
	return checks
}

// running reports whether there is a process of this name. Where other processes are hidden,
// as in a container, there is none to be seen.
func (h *host) running(name string) bool {
	for _, pid := range h.list("proc") {
		if pid[0] >= '0' && pid[0] <= '9' && h.read(path.Join("proc", pid, "comm")) == name {
			return true
		}
	}
	return false
}
