package rdmanet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the run if goroutines or descriptors are left when all tests are done.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(runRole(role))
	}
	openDevices()
	files, goroutines := openFiles(), ourGoroutines()
	code := m.Run()
	if code == 0 {
		code = checkLeaks(files, goroutines)
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

// checkLeaks waits for a while for what is being torn down in the background.
func checkLeaks(files map[string]string, goroutines map[string]string) int {
	var leaked string
	for range 100 {
		leaked = leakedFiles(files) + leakedGoroutines(goroutines)
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

func leakedFiles(before map[string]string) string {
	var leaked strings.Builder
	for fd, target := range openFiles() {
		if before[fd] == target || !strings.Contains(target, "memfd") && !strings.Contains(target, "socket") && !strings.Contains(target, "eventfd") {
			continue
		}
		fmt.Fprintf(&leaked, "descriptor %s: %s\n", fd, target)
	}
	return leaked.String()
}
