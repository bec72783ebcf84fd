package main

import "strings"

// checkNamespace tells which network namespaces have the devices: all, or each
// device one. The kernel shows what `rdma system` does in this parameter of ib_core.
func (h *host) checkNamespace() []check {
	t := topic{name: "namespace"}
	switch h.read("sys/module/ib_core/parameters/netns_mode") {
	case "Y":
		return []check{t.ok("shared: every network namespace sees the RDMA devices, each with its own addresses")}
	case "N":
		if away := h.elsewhere(); away != nil {
			return []check{t.note(h.toTheHost(), "exclusive: %s belongs to another network namespace", strings.Join(away, ", "))}
		}
		return []check{t.ok("exclusive: an RDMA device belongs to one network namespace")}
	}
	return nil // without ib_core there is nothing to share
}

// toTheHost is the line that starts a program in the network namespace of the host,
// where the devices most likely are. To share them instead is no choice any more: the
// kernel refuses it while there are several namespaces.
func (h *host) toTheHost() string {
	if h.container() {
		return "docker run --network host IMAGE"
	}
	return "sudo nsenter --net=/proc/1/ns/net " + h.self
}
