package over

import (
	"fmt"
	"os"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// TestMain fails the run if goroutines or descriptors are left when all tests are done.
func TestMain(m *testing.M) {
	connectOnce()
	before := leaktest.Take()
	code := m.Run()
	if leaked := before.Wait(nil); code == 0 && leaked != "" {
		fmt.Fprintln(os.Stderr, "leaked:\n"+leaked)
		code = 1
	}
	os.Exit(code)
}

// connectOnce has the process open what it opens once: that is no leak.
func connectOnce() {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		return
	}
	defer l.Close()
	if c, err := rdmanet.Dial("rdma", l.Addr().String()); err == nil {
		_ = c.Close()
	}
}
