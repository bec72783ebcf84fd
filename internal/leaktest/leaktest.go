// Package leaktest finds what tests leave behind in their process: goroutines that
// run code of this module, and descriptors and mappings of the kinds that connections
// have.
//
// It is kept by hand: goleak reports all goroutines but those on a list, where the tests of HTTP
// and gRPC leave others than ours, and it knows no descriptors or mappings.
package leaktest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// A Snapshot is what there was before the tests.
type Snapshot struct {
	files, goroutines map[string]string
	mappings          map[string]int
}

// Take looks at the process as it is now.
func Take() Snapshot { return Snapshot{OpenFiles(), ourGoroutines(), Mappings()} }

// Wait returns a text about all that has come since the snapshot and stays, "" if
// there is nothing. It waits half a minute for what is torn down in the background.
// more, which may be nil, tells of leaks of other kinds.
func (s Snapshot) Wait(more func() string) (leaked string) { return s.wait(patience, leastLooks, more) }

// Collected runs the garbage collector until done reports true, for half a minute at most, and
// reports whether it did.
func Collected(done func() bool) bool {
	for end := time.Now().Add(patience); !done(); runtime.GC() {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

const (
	patience   = 30 * time.Second
	leastLooks = 100 // however slow a look is
)

func (s Snapshot) wait(patience time.Duration, least int, more func() string) (leaked string) {
	began := time.Now()
	for looks := 0; looks < least || time.Since(began) < patience; looks++ {
		leaked = s.LeakedFiles() + s.leakedMappings() + s.leakedGoroutines()
		if leaked == "" && more != nil {
			leaked = more()
		}
		if leaked == "" {
			return ""
		}
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	return leaked
}

// ourGoroutines returns the stacks of goroutines with code of this module, by their
// number; of all but this one, which is in TestMain.
func ourGoroutines() map[string]string {
	buf := make([]byte, 4<<20)
	ours := map[string]string{}
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	for _, g := range stacks[1:] {
		if strings.Contains(g, "go-rdmanet/") {
			number, _, _ := strings.Cut(g, " [")
			ours[number] = g
		}
	}
	return ours
}

func (s Snapshot) leakedGoroutines() string {
	var leaked strings.Builder
	for number, stack := range ourGoroutines() {
		if _, ok := s.goroutines[number]; !ok {
			leaked.WriteString(stack + "\n\n")
		}
	}
	return leaked.String()
}

// OpenFiles returns what the descriptors of this process are, by their numbers; nothing
// where the system has no /proc.
func OpenFiles() map[string]string {
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

// leakable are the descriptors that connections have; tests open others.
var leakable = regexp.MustCompile("memfd|socket|eventfd|infiniband")

// LeakedFiles tells of the descriptors that have come since the snapshot, now.
func (s Snapshot) LeakedFiles() string {
	var leaked strings.Builder
	for fd, target := range OpenFiles() {
		if s.files[fd] == target || !leakable.MatchString(target) {
			continue
		}
		fmt.Fprintf(&leaked, "descriptor %s: %s\n", fd, target)
	}
	return leaked.String()
}

// mapped is what connections map.
var mapped = regexp.MustCompile("memfd:|/dev/infiniband")

// Mappings counts the mappings of this process that are like those of connections, by
// what is mapped; none where the system has no /proc.
func Mappings() map[string]int {
	mappings := map[string]int{}
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if at := mapped.FindStringIndex(line); at != nil {
			mappings[strings.TrimSpace(line[at[0]:])]++
		}
	}
	return mappings
}

func (s Snapshot) leakedMappings() string {
	var leaked strings.Builder
	for what, n := range Mappings() {
		if more := n - s.mappings[what]; more > 0 {
			fmt.Fprintf(&leaked, "%d mappings of %s\n", more, what)
		}
	}
	return leaked.String()
}
