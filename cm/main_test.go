package cm

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
)

// TestMain runs the tests, or plays the other end of one in a process of its own.
func TestMain(m *testing.M) {
	if addr := os.Getenv(converseVar); addr != "" {
		if err := converseAsAsked(addr); err != nil {
			fmt.Fprintln(os.Stderr, "the other process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// converseVar makes a process the end that is written to, at this address of the
// device of RDMANET_DEVICE.
const converseVar = "CM_TEST_CONVERSE"

func converseAsAsked(addr string) error {
	local, err := netip.ParseAddr(addr)
	if err != nil {
		return err
	}
	rw, err := outOfBand()
	if err != nil {
		return err
	}
	defer rw.Close()
	return converse(rw, DefaultDevice(), local, false)
}
