package main

import (
	"path"
	"strconv"
	"strings"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// checkInterrupts looks whether all interrupts of a card go to one processor, which then
// wakes every reader of the host.
func (h *host) checkInterrupts(d rdmanet.Device) []check {
	t := topic{"interrupts", d.Name}
	lists := map[string]bool{}
	interrupts := 0
	for _, irq := range h.list(path.Join(sysDevices, d.Name, "device/msi_irqs")) {
		dir := path.Join("proc/irq", irq)
		list := h.read(path.Join(dir, "effective_affinity_list"))
		if list == "" {
			list = h.read(path.Join(dir, "smp_affinity_list"))
		}
		if list != "" {
			interrupts++
			lists[list] = true
		}
	}
	switch {
	case interrupts == 0:
		return nil // it has none, or they are not to be seen
	case interrupts > 1 && len(lists) == 1:
		var only string
		for only = range lists {
		}
		if _, err := strconv.Atoi(only); err == nil && h.processors() > 1 {
			return []check{t.note("systemctl enable --now irqbalance", "all %d go to processor %s, which wakes every reader", interrupts, only)}
		}
	}
	if interrupts == 1 || h.processors() < 2 {
		return []check{t.ok("%d: there is nothing to spread over processors", interrupts)}
	}
	return []check{t.ok("%d, spread over processors", interrupts)}
}

// processors is how many there are.
func (h *host) processors() (n int) {
	for _, name := range h.list("sys/devices/system/cpu") {
		digits, ok := strings.CutPrefix(name, "cpu")
		if _, err := strconv.Atoi(digits); ok && err == nil {
			n++
		}
	}
	return n
}
