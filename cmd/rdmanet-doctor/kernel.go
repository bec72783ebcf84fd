package main

import (
	"path"
	"slices"
	"strings"
)

// Where the kernel describes its RDMA devices, and their interface to programs: the
// directories are there as soon as ib_core, ib_uverbs and rdma_ucm are loaded.
const (
	sysDevices = "sys/class/infiniband"
	sysUverbs  = "sys/class/infiniband_verbs"
	sysCM      = "sys/class/misc/rdma_cm"
	sysNet     = "sys/class/net"
)

// kernelDevices are the RDMA devices that the kernel shows this process.
func (h *host) kernelDevices() []string { return h.list(sysDevices) }

// checkKernel looks for devices and for the modules that lead to them.
func (h *host) checkKernel() []check {
	t := topic{name: "kernel"}
	devices := h.kernelDevices()
	if len(devices) == 0 {
		return []check{h.noDevice(t)}
	}
	var checks []check
	if !h.exists(sysUverbs) {
		checks = append(checks, t.fail("modprobe ib_uverbs", "the module ib_uverbs is not loaded: programs cannot use %s", strings.Join(devices, ", ")))
	}
	if !h.exists(sysCM) {
		checks = append(checks, t.fail("modprobe rdma_ucm", "the module rdma_ucm is not loaded: programs cannot connect"))
	}
	if checks == nil {
		checks = append(checks, t.ok("RDMA devices: %s", strings.Join(devices, ", ")))
	}
	return checks
}

// elsewhere are the devices that only other network namespaces see: the kernel hides
// them, but not their interface to programs.
func (h *host) elsewhere() (names []string) {
	for _, uverbs := range h.list(sysUverbs) {
		if owner := h.ownerOf(uverbs); owner != "" && !h.exists(path.Join(sysDevices, owner)) {
			names = append(names, owner)
		}
	}
	return names
}

// ownerOf is the device that an entry of sysUverbs is of, "" if it is none.
func (h *host) ownerOf(uverbs string) string { return h.read(path.Join(sysUverbs, uverbs, "ibdev")) }

// noDevice is no failure: the software device is there without any.
func (h *host) noDevice(t topic) check {
	if h.elsewhere() != nil {
		return t.note("", "no RDMA device in this network namespace: the software device connects the processes in it")
	}
	for _, nic := range h.list(sysNet) {
		if module := rdmaModules[h.driverOf(nic)]; module != "" && !h.exists("sys/module/"+strings.ReplaceAll(module, "-", "_")) {
			return t.note("modprobe "+module, "no RDMA device; the driver of %s, %s, has one if the card does", nic, h.driverOf(nic))
		}
	}
	return t.note("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "+h.uplink(),
		"no RDMA device: the software device connects the processes of this host; the kernel's soft-RoCE, for tests, is to be had without a card")
}

// rdmaModules are the modules that make RDMA devices of what these network drivers drive.
var rdmaModules = map[string]string{
	"bnxt_en":   "bnxt_re",
	"cxgb4":     "iw_cxgb4",
	"hns3":      "hns-roce-hw-v2",
	"i40e":      "irdma",
	"ice":       "irdma",
	"mana":      "mana_ib",
	"mlx4_core": "mlx4_ib",
	"mlx5_core": "mlx5_ib",
	"qede":      "qedr",
}

// driverOf is the driver of a network device, "" if it has no hardware.
func (h *host) driverOf(nic string) string {
	for line := range strings.Lines(h.read(path.Join(sysNet, nic, "device/uevent"))) {
		if driver, ok := strings.CutPrefix(line, "DRIVER="); ok {
			return strings.TrimSpace(driver)
		}
	}
	return ""
}

// uplink is the network device that leads out, or whichever there is.
func (h *host) uplink() string {
	for line := range strings.Lines(h.read("proc/net/route")) {
		// Interface, destination in hexadecimal, and so on: 0 is the default route.
		if f := strings.Fields(line); len(f) > 1 && f[1] == "00000000" {
			return f[0]
		}
	}
	nics := h.list(sysNet)
	if i := slices.IndexFunc(nics, func(nic string) bool { return nic != "lo" && h.read(path.Join(sysNet, nic, "address")) != "" }); i >= 0 {
		return nics[i]
	}
	return "eth0"
}
