//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"fmt"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
)

// card is a system with a card of four vectors on NUMA node 1, of which vector i goes
// to processor processors[i].
func card(names string, processors ...string) fstest.MapFS {
	root := fstest.MapFS{
		"sys/class/infiniband/mlx5_0/device/numa_node":   {Data: []byte("1\n")},
		"sys/devices/system/node/node1/cpulist":          {Data: []byte("4-7\n")},
		"sys/class/infiniband/mlx5_0/device/msi_irqs/90": {Data: []byte("msix\n")},
		"sys/kernel/irq/90/actions":                      {Data: []byte("mlx5_async0@pci:0000:3b:00.0\n")},
		"proc/irq/90/effective_affinity_list":            {Data: []byte("0\n")},
	}
	for i, p := range processors {
		irq := fmt.Sprint(100 + i)
		root["sys/class/infiniband/mlx5_0/device/msi_irqs/"+irq] = &fstest.MapFile{Data: []byte("msix\n")}
		root["sys/kernel/irq/"+irq+"/actions"] = &fstest.MapFile{Data: fmt.Appendf(nil, names+"\n", i)}
		root["proc/irq/"+irq+"/smp_affinity_list"] = &fstest.MapFile{Data: []byte(p + "\n")}
	}
	return root
}

const mlx5 = "mlx5_comp%d@pci:0000:3b:00.0"

func TestUsableVectors(t *testing.T) {
	for name, c := range map[string]struct {
		root    fstest.MapFS
		allowed string
		want    []uint32
	}{
		"all processors, near ones first":  {card(mlx5, "4", "0", "5", "1"), "0-7", []uint32{0, 2}},
		"a cpuset on the node":             {card(mlx5, "4", "5", "6", "7"), "6-7", []uint32{2, 3}},
		"a cpuset on the other node":       {card(mlx5, "4", "0", "5", "1"), "0-3", []uint32{1, 3}},
		"a cpuset that no interrupt is in": {card(mlx5, "4", "4", "5", "5"), "2", []uint32{0, 1, 2, 3}},
		"lists":                            {card(mlx5, "0-3", "4-7", "0-7", "2"), "3-4", []uint32{1, 2}},
		"irdma":                            {card("irdma-0000:3b:00.0-CEQ-%d", "4", "0", "5", "1"), "0-3", []uint32{1, 3}},
		"hns":                              {card("hns-0000:3b:00.0-ceq-%d", "4", "0", "5", "1"), "0-3", []uint32{1, 3}},
		"EFA":                              {card("efa-comp%d@pci:0000:3b:00.0", "4", "0", "5", "1"), "0-3", []uint32{1, 3}},
		"names that tell nothing":          {card("eth%d-rx", "4", "0", "5", "1"), "0-3", []uint32{0, 1, 2, 3}},
		"no interrupts, as soft-RoCE":      {fstest.MapFS{}, "0-3", []uint32{0, 1, 2, 3}},
		"affinity that makes no sense":     {card(mlx5, "", "x", "-3", "9-99999999"), "0-3", []uint32{0, 1, 2, 3}},
		"processors not known":             {card(mlx5, "4", "0", "5", "1"), "", []uint32{0, 1, 2, 3}},
	} {
		assert.Equal(t, c.want, usableVectors(c.root, "mlx5_0", 4, parseProcessors(c.allowed)), name)
	}
	without := card(mlx5, "4", "0", "5", "1")
	without["sys/class/infiniband/mlx5_0/device/numa_node"].Data = []byte("-1\n")
	assert.Equal(t, []uint32{0, 1, 2, 3}, usableVectors(without, "mlx5_0", 4, parseProcessors("0-7")))
	assert.Equal(t, []uint32{0}, usableVectors(without, "mlx5_0", 0, nil), "there is always one")
	assert.Equal(t, []uint32{0, 1}, usableVectors(card(mlx5, "0", "0", "4", "4"), "mlx5_0", 2, parseProcessors("4-7")), "more interrupts than vectors")
}

func TestAllowedProcessors(t *testing.T) {
	assert.Len(t, allowedProcessors(), runtime.NumCPU())
}

func FuzzParseProcessors(f *testing.F) {
	for _, s := range []string{"", "0-3,8", "3-1", "-", "1-2-3", "65536-99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for p := range parseProcessors(s) {
			assert.GreaterOrEqual(t, p, 0)
			assert.LessOrEqual(t, p, maxProcessor)
		}
	})
}
