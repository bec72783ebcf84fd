package main

import (
	"fmt"
	"path"
	"strconv"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// checkClass tells which class of traffic a RoCE card's packets are in, as far as the
// system shows it. A lossless fabric drops RoCE that comes in the class of all else.
func (h *host) checkClass(d rdmanet.Device) (checks []check) {
	if d.Transport != verbs.TransportRoCE || h.exists(path.Join(sysDevices, d.Name, "parent")) { // soft-RoCE
		return nil
	}
	for _, p := range d.Ports {
		nic := h.netdev(d, p)
		if !active(p) || nic == "" {
			continue
		}
		t := topic{"class", fmt.Sprintf("%s port %d", d.Name, p.Number)}
		tos, known := h.defaultTOS(d.Name, p.Number)
		trust := h.read(path.Join(sysNet, nic, "qos/trust"))
		switch {
		case trust == "pcp":
			checks = append(checks, t.note(fmt.Sprintf("mlnx_qos -i %s --trust dscp", nic),
				"%s sorts packets by their VLAN priority and not by their DSCP, which is what TOS sets", nic))
		case !known:
			checks = append(checks, t.note("", "the default DSCP is not to be seen (/sys/kernel/config/rdma_cm); where the fabric is lossless set Dialer.TOS to the class that it has for RoCE"))
		case tos == 0:
			checks = append(checks, t.note(fmt.Sprintf("cma_roce_tos -d %s -p %d -t 4*DSCP", d.Name, p.Number),
				"the default DSCP is 0, the class of all other traffic: where the fabric is lossless set the one that it has for RoCE, here or in Dialer.TOS"))
		default:
			checks = append(checks, t.ok("the default DSCP is %d (TOS %d)", tos>>2, tos))
		}
	}
	return checks
}

// defaultTOS is the type of service that the kernel gives to connections without one.
func (h *host) defaultTOS(device string, port uint8) (tos uint64, known bool) {
	p := strconv.Itoa(int(port))
	for _, file := range []string{
		path.Join("sys/kernel/config/rdma_cm", device, "ports", p, "default_roce_tos"),
		path.Join(sysDevices, device, "tc", p, "traffic_class"), // of drivers that come from their vendor
	} {
		if tos, err := strconv.ParseUint(h.read(file), 0, 8); err == nil {
			return tos, true
		}
	}
	return 0, false
}
