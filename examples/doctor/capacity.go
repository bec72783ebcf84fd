package main

import (
	"fmt"
	"strings"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// What one end of a lane takes of a device, which carries the connections to one process: a QP, a CQ for each direction, and
// memory regions: one for the ring, one more while it grows, and those that it sends
// from, of which there are at least one and at most four.
const (
	qpsEach    = 1
	cqsEach    = 2
	mrsAtFirst = 2
	mrsAtMost  = 6
)

// checkCapacity compares what a device has with what n connections take.
func checkCapacity(d rdmanet.Device, n int) []check {
	t := topic{"capacity", d.Name}
	if d.Transport == cm.TransportSoftware || d.Err != nil || d.MaxQP == 0 {
		return nil // the one makes what is asked for, the others do not tell
	}
	var few []string
	for _, c := range []struct {
		what       string
		have, need int
	}{
		{"queue pairs", d.MaxQP, qpsEach * n},
		{"completion queues", d.MaxCQ, cqsEach * n},
		{"memory regions", d.MaxMR, mrsAtFirst * n},
	} {
		if c.have < c.need {
			few = append(few, fmt.Sprintf("%d %s where %d are needed", c.have, c.what, c.need))
		}
	}
	switch {
	case few != nil:
		return []check{t.fail("devlink resource show # and the driver's manual: how many it has is set there",
			"too little for connections to %d processes: %s", n, strings.Join(few, ", "))}
	case d.MaxMR < mrsAtMost*n:
		return []check{t.note("", "enough for connections to %d processes, but %d memory regions are fewer than the %d that they have when all of them are busy: the rings of some stay small",
			n, d.MaxMR, mrsAtMost*n)}
	}
	return []check{t.ok("%d queue pairs, %d completion queues, %d memory regions: connections to %d processes take %d, %d and up to %d",
		d.MaxQP, d.MaxCQ, d.MaxMR, n, qpsEach*n, cqsEach*n, mrsAtMost*n)}
}
