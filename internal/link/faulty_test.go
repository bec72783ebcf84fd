package link

import (
	"os"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// The late devices do what a device may do at any time: see package faulty. All tests of
// flavours run over them. The failing ones do as they are told.
var (
	_            = faulty.RegisterOverSoft("late0", "soft0", faulty.DefaultPlan(faulty.Seed))
	_            = faulty.RegisterOverSoft("late0-iwarp", "soft0-iwarp", faulty.DefaultPlan(faulty.Seed+1))
	failing      = faulty.RegisterOverSoft("failing0", "soft0", faulty.Plan{})
	failingIWARP = faulty.RegisterOverSoft("failing0-iwarp", "soft0-iwarp", faulty.Plan{})
)

// needFailing skips a test of what failing devices do where the tests are run for another device.
func needFailing(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		t.Skip("the device that fails is one over the software device")
	}
}
