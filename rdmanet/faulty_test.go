package rdmanet

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

// faulty0 is late, out of order and wakes for nothing: what a device may do. Tests run over
// it as a flavour, and all of them with RDMANET_DEVICE=faulty0.
var faulty0 = newFaulty("faulty0", "soft0", faulty.DefaultPlan(faultSeed))

// newFaulty registers a faulty device over one of the software driver's.
func newFaulty(name, device string, plan faulty.Plan) *faulty.Driver {
	all := verbs.Drivers()
	soft := slices.IndexFunc(all, func(d verbs.Driver) bool { return d.Name() == "soft" })
	d := faulty.New(name, all[soft], device, plan)
	verbs.Register(d)
	return d
}

func init() {
	_ = os.Setenv(faultSeedVar, strconv.FormatUint(faultSeed, 10)) // for the other processes of a test
}

// tellFaultSeed tells how to have the same faults again.
func tellFaultSeed() {
	fmt.Fprintf(os.Stderr, "for the same faults again: %s=%d\n", faultSeedVar, faultSeed)
}
