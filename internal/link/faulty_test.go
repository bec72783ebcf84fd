package link

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// faultSeedVar repeats what the faulty devices did in a run that failed, which printed it.
const faultSeedVar = "RDMANET_FAULT_SEED"

var faultSeed = func() uint64 {
	if s, err := strconv.ParseUint(os.Getenv(faultSeedVar), 10, 64); err == nil {
		return s
	}
	return uint64(time.Now().UnixNano())
}()

// The late devices do what a device may do at any time: see package faulty. All tests of
// flavours run over them. The failing ones do as they are told.
var (
	_            = newFaulty("late0", "soft0", faulty.DefaultPlan(faultSeed))
	_            = newFaulty("late0-iwarp", "soft0-iwarp", faulty.DefaultPlan(faultSeed+1))
	failing      = newFaulty("failing0", "soft0", faulty.Plan{})
	failingIWARP = newFaulty("failing0-iwarp", "soft0-iwarp", faulty.Plan{})
)

// newFaulty registers a faulty device over one of the software driver's.
func newFaulty(name, device string, plan faulty.Plan) *faulty.Driver {
	all := verbs.Drivers()
	soft := slices.IndexFunc(all, func(d verbs.Driver) bool { return d.Name() == "soft" })
	d := faulty.New(name, all[soft], device, plan)
	verbs.Register(d)
	return d
}

// tellFaultSeed tells how to have the same faults again.
func tellFaultSeed() {
	fmt.Fprintf(os.Stderr, "for the same faults again: %s=%d\n", faultSeedVar, faultSeed)
}
