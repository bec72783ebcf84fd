//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Completion vectors are a device's interrupts. What tells of a completion first runs on
// the processor that the interrupt goes to: it had better be one that this process may
// use, and one that is near the device.

// nextVector spreads completion channels over the device's vectors.
func (c *devContext) nextVector() uint32 {
	c.vectorsOnce.Do(func() {
		n := int(at[cContext](c.handle).numCompVectors)
		c.vectors = usableVectors(os.DirFS("/"), c.dev.name, n, allowedProcessors())
	})
	return c.vectors[c.vector.Add(1)%uint32(len(c.vectors))]
}

// A processorSet is a set of processors by their numbers.
type processorSet map[int]bool

func (s processorSet) meets(o processorSet) bool {
	for p := range s {
		if o[p] {
			return true
		}
	}
	return false
}

// allowedProcessors are those that this process may run on (its cpuset included), nil if
// that is not known.
func allowedProcessors() processorSet {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	all := processorSet{}
	for i := range len(set) * strconv.IntSize {
		if set.IsSet(i) {
			all[i] = true
		}
	}
	return all
}

// usableVectors are the vectors of n whose interrupts go to a processor that is allowed
// and on the device's NUMA node; or, where there is none, to one that is allowed; or all.
// The system shows where interrupts go only for some drivers.
func usableVectors(root fs.FS, device string, n int, allowed processorSet) []uint32 {
	n = max(n, 1)
	goes := vectorProcessors(root, device)
	near := nodeProcessors(root, device)
	var allVectors, reachable, nearby []uint32
	for v := range n {
		allVectors = append(allVectors, uint32(v))
		if to := goes[v]; to.meets(allowed) {
			reachable = append(reachable, uint32(v))
			if to.meets(near) && near.meets(allowed) {
				nearby = append(nearby, uint32(v))
			}
		}
	}
	switch {
	case len(nearby) > 0:
		return nearby
	case len(reachable) > 0:
		return reachable
	}
	return allVectors
}

// vectorName finds the number of a vector in the name of an interrupt's handler:
// mlx5_comp3@pci:0000:3b:00.0, efa-comp3@pci:..., irdma-0000:3b:00.0-CEQ-3, hns-...-ceq-3.
var vectorName = regexp.MustCompile(`(?i)(?:comp|ceq-)(\d+)(?:@|$)`)

// vectorProcessors tells to which processors the interrupts of vectors go.
func vectorProcessors(root fs.FS, device string) map[int]processorSet {
	goes := map[int]processorSet{}
	irqs, err := fs.ReadDir(root, path.Join("sys/class/infiniband", device, "device/msi_irqs"))
	if err != nil {
		return goes
	}
	for _, irq := range irqs {
		m := vectorName.FindStringSubmatch(readText(root, path.Join("sys/kernel/irq", irq.Name(), "actions")))
		if m == nil {
			continue
		}
		v, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		list := readText(root, path.Join("proc/irq", irq.Name(), "effective_affinity_list"))
		if list == "" {
			list = readText(root, path.Join("proc/irq", irq.Name(), "smp_affinity_list"))
		}
		if to := parseProcessors(list); len(to) > 0 {
			goes[v] = to
		}
	}
	return goes
}

// nodeProcessors are those of the device's NUMA node, none if it has none.
func nodeProcessors(root fs.FS, device string) processorSet {
	node, err := strconv.Atoi(readText(root, path.Join("sys/class/infiniband", device, "device/numa_node")))
	if err != nil || node < 0 {
		return nil
	}
	return parseProcessors(readText(root, path.Join("sys/devices/system/node", "node"+strconv.Itoa(node), "cpulist")))
}

// maxProcessor bounds the numbers in a list.
const maxProcessor = 1 << 16

// parseProcessors reads a list as 0-3,8; what makes no sense in it is left out.
func parseProcessors(list string) processorSet {
	set := processorSet{}
	for part := range strings.SplitSeq(list, ",") {
		from, to, many := strings.Cut(part, "-")
		if !many {
			to = from
		}
		first, err1 := strconv.Atoi(strings.TrimSpace(from))
		last, err2 := strconv.Atoi(strings.TrimSpace(to))
		if err1 != nil || err2 != nil || first < 0 || last > maxProcessor {
			continue
		}
		for p := first; p <= last; p++ {
			set[p] = true
		}
	}
	return set
}

// readText is what a small file says, "" if it cannot be read.
func readText(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
