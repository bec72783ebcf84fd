package rdmanet

import (
	"os"
	"strconv"

	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// faulty0 is late, out of order and wakes for nothing: what a device may do. Tests run over
// it as a flavour, and all of them with RDMANET_DEVICE=faulty0.
var faulty0 = faulty.RegisterOverSoft("faulty0", "soft0", faulty.DefaultPlan(faulty.Seed))

func init() {
	_ = os.Setenv(faulty.SeedVar, strconv.FormatUint(faulty.Seed, 10)) // for the other processes of a test
}
