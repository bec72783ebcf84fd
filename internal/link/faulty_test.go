package link

import (
	"os"
	"testing"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// The late devices do what a device may do at any time: see package faulty. All tests of
// flavours run over them. The failing ones do as they are told. The asynchronous ones look at sources
// after the post, as hardware does, and the remote ones say besides that they reach other hosts: what
// a lane does over a network it does there.
var (
	_ = faulty.RegisterOverSoft("asynchronous0", "soft0", faulty.Plan{Asynchronous: true})
	_ = faulty.RegisterOverSoft("asynchronous0-iwarp", "soft0-iwarp", faulty.Plan{Asynchronous: true})

	remote = faulty.Plan{Asynchronous: true, Remote: true}
	_      = faulty.RegisterOverSoft("remote0", "soft0", remote)
	_      = faulty.RegisterOverSoft("remote0-iwarp", "soft0-iwarp", remote)

	_            = faulty.RegisterOverSoft("late0", "soft0", faulty.DefaultPlan(faulty.Seed))
	_            = faulty.RegisterOverSoft("late0-remote-iwarp", "soft0-iwarp", lateRemote())
	failing      = faulty.RegisterOverSoft("failing0", "soft0", faulty.Plan{})
	failingIWARP = faulty.RegisterOverSoft("failing0-iwarp", "soft0-iwarp", faulty.Plan{})

	failingAsynchronous = faulty.RegisterOverSoft("failing0-asynchronous", "soft0", faulty.Plan{Asynchronous: true})
	failingRemoteIWARP  = faulty.RegisterOverSoft("failing0-remote-iwarp", "soft0-iwarp", remote)
)

func lateRemote() faulty.Plan {
	p := faulty.DefaultPlan(faulty.Seed + 1)
	p.Asynchronous, p.Remote = true, true
	return p
}

// asynchronous is the device that the tests are run for, or the software device that is so.
func asynchronous() cm.Options {
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		return cm.Options{}
	}
	return cm.Options{Device: "asynchronous0"}
}

// needFailing skips a test of what failing devices do where the tests are run for another device.
func needFailing(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMANET_TEST_ADDR") != "" {
		t.Skip("the device that fails is one over the software device")
	}
}
