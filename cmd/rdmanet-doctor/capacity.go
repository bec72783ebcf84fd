package main

import (
	"fmt"
	"strings"

	"github.com/rdmanet/go-rdmanet/internal/link"
	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// lanes is how many lanes carry the connections to one process at most: as many as both ends have
// processors for, and here nothing is known of the other. Processes of one host share its processors.
func (h *host) lanes(sameHost bool) int { return link.DefaultLanes(max(h.maxProcs, 1), sameHost) }

// to says to how many processes there are connections, by so many lanes each.
func to(n, lanes int) string {
	if lanes == 1 {
		return fmt.Sprintf("connections to %d processes, a lane for each,", n)
	}
	return fmt.Sprintf("connections to %d processes, up to %d lanes for each,", n, lanes)
}

// checkCapacity compares what a device has with what the lanes to n processes take. Lanes come up
// for whoever dials first, so that there have to be enough for all.
func (h *host) checkCapacity(d rdmanet.Device, n int) []check {
	t := topic{"capacity", d.Name}
	if d.Transport == verbs.TransportSoftware || d.Err != nil || d.MaxQP == 0 {
		return nil // the one makes what is asked for, the others do not tell
	}
	each := h.lanes(false)
	lanes := each * n
	var few []string
	for _, c := range []struct {
		what       string
		have, need int
	}{
		{"queue pairs", d.MaxQP, link.LaneQPs * lanes},
		{"completion queues", d.MaxCQ, link.LaneCQs * lanes},
		{"memory regions", d.MaxMR, link.LaneMRs * lanes},
	} {
		if c.have < c.need {
			few = append(few, fmt.Sprintf("%d %s where %d are needed", c.have, c.what, c.need))
		}
	}
	switch {
	case few != nil:
		return []check{t.fail("devlink resource show # and the driver's manual: how many it has is set there",
			"too little for %s at once: %s", to(n, each), strings.Join(few, ", "))}
	case d.MaxMR < link.LaneMRsBusy*lanes:
		return []check{t.note("", "enough for %s but %d memory regions are fewer than the %d that they have when a connection of each lane is busy: the rings of some stay small",
			to(n, each), d.MaxMR, link.LaneMRsBusy*lanes)}
	}
	return []check{t.ok("%d queue pairs, %d completion queues, %d memory regions: %s take %d, %d and %d, or %d when a connection of each lane is busy",
		d.MaxQP, d.MaxCQ, d.MaxMR, to(n, each), link.LaneQPs*lanes, link.LaneCQs*lanes, link.LaneMRs*lanes, link.LaneMRsBusy*lanes)}
}
