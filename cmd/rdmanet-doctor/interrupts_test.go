package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInterrupts(t *testing.T) {
	const irqs = "sys/class/infiniband/rxe0/device/msi_irqs/"
	card := withCard.with(files{
		irqs + "40": "msix", irqs + "41": "msix", irqs + "42": "msix",
		"sys/devices/system/cpu/cpu0/online": "1", "sys/devices/system/cpu/cpu1/online": "1", "sys/devices/system/cpu/cpufreq/x": "",
	})
	affinity := func(kind string, lists ...string) files {
		return card.with(files{"proc/irq/40/" + kind: lists[0], "proc/irq/41/" + kind: lists[1], "proc/irq/42/" + kind: lists[2]})
	}
	const effective, allowed = "effective_affinity_list", "smp_affinity_list"
	for name, tt := range map[string]struct {
		files  files
		want   status
		detail string
	}{
		"spread":                     {affinity(effective, "0", "1", "0"), statusOK, "3, spread over processors"},
		"one processor":              {affinity(effective, "1", "1", "1"), statusNote, "all 3 go to processor 1, which wakes every reader"},
		"allowed to one":             {affinity(allowed, "0", "0", "0"), statusNote, "all 3 go to processor 0"},
		"allowed to all":             {affinity(allowed, "0-1", "0-1", "0-1"), statusOK, "3, spread"},
		"effective comes first":      {affinity(allowed, "0", "0", "0").with(affinity(effective, "0", "1", "0")), statusOK, "3, spread"},
		"there is but one processor": {affinity(effective, "0", "0", "0").without("sys/devices/system/cpu/cpu1"), statusOK, "3: there is nothing to spread over processors"},
		"there is but one interrupt": {card.without(irqs+"41", irqs+"42").with(files{"proc/irq/40/" + effective: "1"}), statusOK, "1: there is nothing to spread over processors"},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(tt.files, roce())
			c := one(t, h.checkInterrupts(roce()))
			assert.Equal(t, tt.want, c.Status, c.Detail)
			assert.Contains(t, c.Detail, tt.detail)
			assert.Equal(t, tt.want == statusNote, c.Fix != "")
		})
	}
	for _, f := range []files{card, withRoCE} {
		h := fakeHost(f, roce())
		assert.Empty(t, h.checkInterrupts(roce()))
	}
}
