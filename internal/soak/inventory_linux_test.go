package soak

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/internal/verbs/verbstest"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// An inventory is what the process has: goroutines, descriptors, mappings, and what the
// devices know of it.
type inventory struct {
	leaktest.Snapshot
	objects map[string]int
}

// takeInventory looks when the device has been used: what is opened once is no leak.
func takeInventory() (inventory, error) {
	l, err := rdmanet.Listen("rdma", testAddr())
	if err != nil {
		return inventory{}, err
	}
	c, err := rdmanet.Dial("rdma", l.Addr().String())
	if err != nil {
		return inventory{}, errors.Join(err, l.Close())
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		return inventory{}, err
	}
	for end := time.Now().Add(patience); leftovers() != "" && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	objects, err := countObjects()
	return inventory{leaktest.Take(), objects}, err
}

// countObjects counts the process's PDs, MRs, QPs and the like, of the kernel and of the
// software device.
func countObjects() (map[string]int, error) {
	objects, err := verbstest.KernelObjects()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("RDMANET_REQUIRE_RDMA") == "" {
		objects, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if objects == nil {
		objects = map[string]int{}
	}
	id, err := cm.NewEventChannel().CreateID(cm.Options{Device: cm.DefaultDevice()})
	if err != nil {
		return nil, err
	}
	defer id.Close()
	if err := id.BindAddr(netip.MustParseAddrPort(testAddr())); err != nil {
		return nil, err
	}
	if c, ok := id.Verbs().(driver.ObjectCounter); ok {
		objects["of the software device"] = c.Objects()
	}
	return objects, nil
}

// left tells what has come since then and stays.
func (i inventory) left() string {
	return i.Wait(func() string {
		left := leftovers()
		if left != "" {
			return left
		}
		switch objects, err := countObjects(); {
		case err != nil:
			return err.Error()
		case more(objects, i.objects):
			return fmt.Sprintf("objects of devices: %v, before %v\n", objects, i.objects)
		}
		return ""
	})
}

// more reports whether there are objects of any kind beyond those before. Fewer are nothing that was
// left: the kernel does not say whose the objects of a thread are that has ended, so those of another
// process may have been counted before.
func more(now, before map[string]int) bool {
	for kind, n := range now {
		if n > before[kind] {
			return true
		}
	}
	return false
}

// leftovers tells what the process still has of connections.
func leftovers() string {
	var left strings.Builder
	if n := rdmanet.MemoryInUse(); n > 0 {
		fmt.Fprintf(&left, "%d bytes of rings\n", n)
	}
	for _, c := range rdmanet.Conns() {
		fmt.Fprintf(&left, "connection %+v\n", c)
	}
	for _, l := range rdmanet.Listeners() {
		fmt.Fprintf(&left, "listener %+v\n", l)
	}
	return left.String()
}

// memory is what the process has when nothing goes on, in bytes: resident without files, and of that
// in use by Go.
type memory struct{ resident, heap int64 }

// takeMemory looks when the collector has given back what it can, and connections that
// are kept for a moment are gone.
func takeMemory() (m memory, err error) {
	time.Sleep(slowly(1200 * time.Millisecond))
	for i := range 5 {
		time.Sleep(slowly(50 * time.Millisecond))
		debug.FreeOSMemory()
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return m, err
		}
		// Not VmRSS, in which are pages of the program itself: the kernel takes and brings those as
		// it likes.
		var kib int64
		for _, kind := range []string{"RssAnon:", "RssShmem:"} {
			_, rest, _ := strings.Cut(string(status), kind)
			var n int64
			if _, err := fmt.Sscan(rest, &n); err != nil {
				return m, fmt.Errorf("%s %w", kind, err)
			}
			kib += n
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		now := memory{kib << 10, int64(stats.HeapAlloc)}
		if i == 0 {
			m = now
		}
		m = memory{min(m.resident, now.resident), min(m.heap, now.heap)}
	}
	return m, nil
}

// growth tells which memory is more than 5% beyond what it was, and a little: the
// runtime's own comes and goes by some.
func (m memory) growth(baseline memory) string {
	const littleResident, littleHeap = 5 << 19, 256 << 10
	if m.resident > baseline.resident+baseline.resident/20+littleResident || m.heap > baseline.heap+baseline.heap/20+littleHeap {
		return fmt.Sprintf("memory has grown from %+v to %+v", baseline, m)
	}
	return ""
}
