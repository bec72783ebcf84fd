package rdmanet

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
)

// TestMain fails the run if goroutines or descriptors are left when all tests are done.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(runRole(role))
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dialNoNames}
	headStart, headStartHere = lasting, lasting
	flag.Parse()
	keptIdle = 50 * time.Millisecond
	openDevices()
	before := leaktest.Take()
	objects, err := verbstest.KernelObjects()
	if err != nil && !(errors.Is(err, exec.ErrNotFound) && os.Getenv("RDMANET_REQUIRE_RDMA") == "") {
		fmt.Fprintln(os.Stderr, "leaks cannot be found:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		code = checkLeaks(before, objects)
	}
	if code != 0 {
		faulty.TellSeed()
	}
	os.Exit(code)
}

// dialNoNames connects to a name server that knows no names: what that of the system
// says of them depends on the network. Those of /etc/hosts are known without one.
func dialNoNames(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		length := make([]byte, 2)
		for {
			if _, err := io.ReadFull(there, length); err != nil {
				return
			}
			msg := make([]byte, binary.BigEndian.Uint16(length))
			if _, err := io.ReadFull(there, msg); err != nil {
				return
			}
			msg[2], msg[3] = msg[2]|0x80, 0x83 // an answer: there is no such name
			if _, err := there.Write(append(length, msg...)); err != nil {
				return
			}
		}
	}()
	return here, nil
}

// openDevices has the process open what it opens once for each device: that is no
// leak. Some tests are about the software device also where another is tested.
func openDevices() {
	for _, device := range []string{"", "soft0", "soft0-iwarp"} {
		at := testAddr()
		if device != "" {
			at = loopbackAddr
		}
		l, err := (&ListenConfig{Device: device}).listen(context.Background(), "rdma", at)
		if err != nil {
			continue
		}
		c, err := (&Dialer{Device: device}).dial(context.Background(), "rdma", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		_ = l.Close()
	}
}

// checkLeaks waits for a while for what is being torn down in the background. It
// compares the kernel's RDMA objects unless objects is nil.
func checkLeaks(before leaktest.Snapshot, objects map[string]int) int {
	leaked := before.Wait(func() string {
		var leaked string
		if objects != nil {
			leaked = leakedObjects(objects)
		}
		if n := MemoryInUse(); n > 0 {
			leaked += fmt.Sprintf("%d bytes of rings\n", n)
		}
		for _, c := range Conns() {
			leaked += fmt.Sprintf("connection %+v\n", c)
		}
		for _, l := range Listeners() {
			leaked += fmt.Sprintf("listener %+v\n", l)
		}
		return leaked
	})
	if leaked == "" {
		return 0
	}
	fmt.Fprintf(os.Stderr, "leaked after all tests:\n%s", leaked)
	return 1
}

// leakedObjects tells of those that the kernel holds for this process and has not held
// before.
func leakedObjects(before map[string]int) string {
	now, err := verbstest.KernelObjects()
	if err != nil {
		return err.Error()
	}
	var leaked strings.Builder
	for kind, n := range now {
		if n > before[kind] {
			all, _ := exec.Command("rdma", "resource", "show", kind).Output() // to be found by
			fmt.Fprintf(&leaked, "%d RDMA objects of kind %s in the kernel (%d before):\n%s", n, kind, before[kind], all)
		}
	}
	return leaked.String()
}
