//go:build linux

package hosts

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// What the script that starts the tests sets on each of the two hosts.
const (
	hostsVar   = "RDMANET_TEST_HOSTS"   // addresses of the RDMA devices, as 10.9.0.1,10.9.0.2
	controlVar = "RDMANET_TEST_CONTROL" // addresses on the network for the tests' own use
	deviceVar  = "RDMANET_DEVICE"       // what the RDMA device is called
	rankVar    = "RANK"                 // 0 runs the tests, 1 does as it is told
	linkVar    = "RDMANET_TEST_LINK"    // the network interface of the RDMA device
)

// TestMain is also the main function of the agent on host 1 and of the workers.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(workerVar) != "":
		os.Exit(exitStatus(work()))
	case os.Getenv(hostsVar) != "" && os.Getenv(rankVar) == "1":
		os.Exit(exitStatus(serveAgent()))
	}
	os.Exit(m.Run())
}

func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "hosts:", err)
	return 1
}

// addresses are the two of a variable.
func addresses(name string) (two [2]netip.Addr, err error) {
	first, second, _ := strings.Cut(os.Getenv(name), ",")
	for i, s := range []string{first, second} {
		if two[i], err = netip.ParseAddr(s); err != nil {
			return two, fmt.Errorf("%s: %w", name, err)
		}
	}
	return two, nil
}
