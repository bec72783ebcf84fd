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
			return []check{t.note("rdma system set netns shared", "exclusive: %s belongs to another network namespace", strings.Join(away, ", "))}
		}
		return []check{t.ok("exclusive: an RDMA device belongs to one network namespace")}
	}
	return nil // without ib_core there is nothing to share
}
