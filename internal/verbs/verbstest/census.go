package verbstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"
)

// A census counts what a process holds.
type census struct {
	goroutines int
	fds        map[string]int // by what they are
	maps       int            // -1 where they cannot be counted
	objects    map[string]int // of the kernel; nil where they cannot be counted
}

func takeCensus() census {
	c := census{goroutines: runtime.NumGoroutine(), fds: openFDs(), maps: -1}
	if b, err := os.ReadFile("/proc/self/maps"); err == nil {
		c.maps = 0
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, "memfd:") || strings.Contains(line, "/dev/infiniband") {
				c.maps++
			}
		}
	}
	return c
}

// kernelObjects is KernelObjects, or nil where there is no tool to ask.
func kernelObjects(t *testing.T) map[string]int {
	t.Helper()
	objects, err := KernelObjects()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Fatal(err)
	}
	return objects
}

// openFDs counts open descriptors by kind, where the system tells.
func openFDs() map[string]int {
	fds := map[string]int{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fds
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil {
			continue // the descriptor of this very directory
		}
		kind, _, _ := strings.Cut(target, " ")
		if socket, _, ok := strings.Cut(kind, ":["); ok && !strings.HasPrefix(kind, "anon_inode") {
			kind = socket // without its inode number
		}
		fds[kind]++
	}
	return fds
}

// requireNoMore requires that the process holds no more than then; what is being
// torn down gets some time.
func (c census) requireNoMore(t *testing.T, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for turn := 0; ; turn++ {
		now := takeCensus()
		more := now.more(c)
		if len(more) == 0 {
			now.objects = kernelObjects(t)
			more = now.more(c)
		}
		if len(more) == 0 {
			return
		}
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("left behind: %s\n%s", strings.Join(more, ", "), buf[:runtime.Stack(buf, true)])
		}
		pause(1 << 10)
	}
}

func (c census) more(then census) []string {
	var list []string
	if c.goroutines > then.goroutines {
		list = append(list, fmt.Sprintf("%d goroutines (%d before)", c.goroutines, then.goroutines))
	}
	for kind, n := range c.fds {
		if n > then.fds[kind] {
			list = append(list, fmt.Sprintf("%d descriptors of %s (%d before)", n, kind, then.fds[kind]))
		}
	}
	for kind, n := range c.objects {
		if n > then.objects[kind] {
			list = append(list, fmt.Sprintf("%d RDMA objects of kind %s in the kernel (%d before)", n, kind, then.objects[kind]))
		}
	}
	if c.maps > then.maps {
		list = append(list, fmt.Sprintf("%d shared mappings (%d before)", c.maps, then.maps))
	}
	sort.Strings(list)
	return list
}

// warmUp uses the device once, so that what a driver keeps for the life of the
// process is there before the census: also what it has for one processor, which a test that
// counts allocations runs on for a while.
func (s *suite) warmUp(t *testing.T) {
	t.Run("WarmUp", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		t.Run("Pair", func(t *testing.T) {
			e := s.open(t)
			exchange(t, e.pair(PairConfig{}))
		})
		if s.cfg.Driver != nil {
			t.Run("CM", func(t *testing.T) {
				e := s.open(t)
				exchange(t, e.cmPair(cmOptions{}).Pair)
			})
		}
	})
}
