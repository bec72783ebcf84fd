package faulty

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// SeedVar is the variable of the environment that repeats what faulty devices did in a run that
// failed, which has printed it.
const SeedVar = "RDMANET_FAULT_SEED"

// Seed is that of the process: what SeedVar says, or another each time.
var Seed = func() uint64 {
	if s, err := strconv.ParseUint(os.Getenv(SeedVar), 10, 64); err == nil {
		return s
	}
	return uint64(time.Now().UnixNano())
}()

// TellSeed tells how to have the same faults again.
func TellSeed() {
	fmt.Fprintf(os.Stderr, "for the same faults again: %s=%d\n", SeedVar, Seed)
}

// NewOverSoft is New over a device of the software driver, which the program has linked in.
func NewOverSoft(name, device string, plan Plan) *Driver {
	all := driver.Drivers()
	soft := slices.IndexFunc(all, func(d driver.Driver) bool { return d.Name() == "soft" })
	return New(name, all[soft], device, plan)
}

// RegisterOverSoft registers one, and returns it.
func RegisterOverSoft(name, device string, plan Plan) *Driver {
	d := NewOverSoft(name, device, plan)
	driver.Register(d)
	return d
}
