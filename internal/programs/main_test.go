package programs

import (
	"fmt"
	"os"
	"testing"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// TestMain fails the run if connections, or the programs on them, leave anything behind.
func TestMain(m *testing.M) {
	if err := openDevice(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	before := leaktest.Take()
	code := m.Run()
	removeProxy()
	leaked := before.Wait(func() string {
		if n := rdmanet.MemoryInUse(); n > 0 {
			return fmt.Sprintf("%d bytes of rings\n", n)
		}
		return ""
	})
	if leaked != "" && code == 0 {
		fmt.Fprintf(os.Stderr, "leaked after all tests:\n%s", leaked)
		code = 1
	}
	os.Exit(code)
}

// openDevice has the process open what it opens once for a device: that is no leak.
func openDevice() error {
	l, err := rdmanet.Listen("rdma", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		return err
	}
	return conn.Close()
}
