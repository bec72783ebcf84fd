package main

import (
	"path"
	"slices"
	"strings"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// checkRPFilter looks, on a host with several network devices for RDMA, for strict
// filtering of sources: then requests that come by another of them than answers would go
// are dropped without a word.
func (h *host) checkRPFilter() []check {
	var nics []string
	strict := ""
	for _, d := range h.devices {
		if d.Transport == verbs.TransportSoftware || d.Transport == verbs.TransportIB {
			continue
		}
		for _, p := range d.Ports {
			nic := h.netdev(d, p)
			if nic == "" || !active(p) || slices.Contains(nics, nic) { // two devices may be of one
				continue
			}
			nics = append(nics, nic)
			// The larger of the two holds: 0 none, 1 strict, 2 loose.
			if filter := max(h.sysctl("all"), h.sysctl(nic)); filter == "1" {
				strict += " net.ipv4.conf." + nic + ".rp_filter=2"
			}
		}
	}
	t := topic{"rp_filter", strings.Join(nics, " and ")}
	switch {
	case len(nics) < 2:
		return nil
	case strict != "":
		return []check{t.note("sudo sysctl -w"+strict, "is strict: if two of them are in one network, requests for connections that come by the other are dropped, and dials wait in vain")}
	}
	return []check{t.ok("is not strict")}
}

func (h *host) sysctl(nic string) string {
	return h.read(path.Join("proc/sys/net/ipv4/conf", nic, "rp_filter"))
}
