package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
)

// TestMain fails the run if goroutines or descriptors are left when all tests are done.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(runRole(role))
	}
	openDevices()
	files, goroutines := openFiles(), ourGoroutines()
	objects, err := verbstest.KernelObjects()
	if err != nil && !(errors.Is(err, exec.ErrNotFound) && os.Getenv("RDMANET_REQUIRE_RDMA") == "") {
		fmt.Fprintln(os.Stderr, "leaks cannot be found:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		code = checkLeaks(files, goroutines, objects)
	}
	os.Exit(code)
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
func checkLeaks(files, goroutines map[string]string, objects map[string]int) int {
	var leaked string
	for range 100 {
		leaked = leakedFiles(files) + leakedGoroutines(goroutines)
		if leaked == "" && objects != nil {
			leaked = leakedObjects(objects)
		}
		if leaked == "" && MemoryInUse() == 0 {
			return 0
		}
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "leaked after all tests:\n%d bytes of rings\n%s", MemoryInUse(), leaked)
	return 1
}

// ourGoroutines returns the stacks of goroutines with code of this module, by their number.
func ourGoroutines() map[string]string {
	buf := make([]byte, 4<<20)
	ours := map[string]string{}
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "go-rdmanet/") && !strings.Contains(g, "rdmanet.TestMain") {
			number, _, _ := strings.Cut(g, " [")
			ours[number] = g
		}
	}
	return ours
}

func leakedGoroutines(before map[string]string) string {
	var leaked strings.Builder
	for number, stack := range ourGoroutines() {
		if _, ok := before[number]; !ok {
			leaked.WriteString(stack + "\n\n")
		}
	}
	return leaked.String()
}

// leakedObjects are those that the kernel holds for this process.
func leakedObjects(before map[string]int) string {
	now, err := verbstest.KernelObjects()
	if err != nil {
		return err.Error()
	}
	if maps.Equal(before, now) {
		return ""
	}
	return fmt.Sprintf("RDMA objects of the kernel: %v, before the tests %v\n", now, before)
}

func openFiles() map[string]string {
	files := map[string]string{}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err == nil {
			files[e.Name()] = target
		}
	}
	return files
}

// leakable are the descriptors that connections have; the tests open others.
var leakable = regexp.MustCompile("memfd|socket|eventfd|infiniband")

func leakedFiles(before map[string]string) string {
	var leaked strings.Builder
	for fd, target := range openFiles() {
		if before[fd] == target || !leakable.MatchString(target) {
			continue
		}
		fmt.Fprintf(&leaked, "descriptor %s: %s\n", fd, target)
	}
	return leaked.String()
}
