package link

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// testAddr is where tests listen. The test bed with the kernel's soft-RoCE sets it, together
// with RDMANET_DEVICE.
func testAddr() netip.AddrPort {
	if addr := os.Getenv("RDMANET_TEST_ADDR"); addr != "" {
		return netip.MustParseAddrPort(addr)
	}
	return netip.MustParseAddrPort("127.0.0.1:0")
}

// RoleVar names what a process does that a benchmark started from this test binary, and Roles
// what that is.
const RoleVar = "RDMANET_LINK_ROLE"

var Roles = map[string]func() int{}

// TestMain fails the run if goroutines or descriptors are left when all tests are done.
func TestMain(m *testing.M) {
	if role := Roles[os.Getenv(RoleVar)]; role != nil {
		os.Exit(role())
	}
	openDevices()
	before := leaktest.Take()
	code := m.Run()
	if code != 0 {
		faulty.TellSeed()
	}
	if code == 0 {
		if leaked := before.Wait(nil); leaked != "" {
			fmt.Fprintf(os.Stderr, "leaked after all tests:\n%s", leaked)
			code = 1
		}
	}
	os.Exit(code)
}
