package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

func TestCapacity(t *testing.T) {
	for name, tt := range map[string]struct {
		processors, qp, cq, mr int
		want                   status
		detail                 string
	}{
		"enough":               {1, 1000, 2000, 10000, statusOK, "connections to 1000 processes, a lane for each, take 1000, 2000 and 3000, or 10000 when a connection of each lane is busy"},
		"enough for two lanes": {2, 2000, 4000, 20000, statusOK, "connections to 1000 processes, up to 2 lanes for each, take 2000, 4000 and 6000, or 20000 when"},
		"enough for all lanes": {64, 8000, 16000, 80000, statusOK, "up to 8 lanes for each, take 8000, 16000 and 24000, or 80000 when"},
		"too few QPs":          {8, 7999, 16000, 80000, statusFail, "7999 queue pairs where 8000 are needed"},
		"too few CQs":          {8, 8000, 15999, 80000, statusFail, "15999 completion queues where 16000 are needed"},
		"too few MRs":          {8, 8000, 16000, 23999, statusFail, "23999 memory regions where 24000 are needed"},
		"too few of all":       {1, 1, 2, 3, statusFail, "1 queue pairs where 1000 are needed, 2 completion queues where 2000 are needed, 3 memory"},
		"enough MRs for a few": {8, 8000, 16000, 79999, statusNote, "79999 memory regions are fewer than the 80000 that they have when a connection of each lane is busy: the rings of some stay small"},
	} {
		t.Run(name, func(t *testing.T) {
			d := roce()
			d.MaxQP, d.MaxCQ, d.MaxMR = tt.qp, tt.cq, tt.mr
			h := host{maxProcs: tt.processors}
			c := one(t, h.checkCapacity(d, 1000))
			assert.Equal(t, tt.want, c.Status)
			assert.Contains(t, c.Detail, tt.detail)
			assert.Equal(t, c.Status == statusFail, c.Fix != "")
		})
	}
	h := host{maxProcs: 8}
	assert.Empty(t, h.checkCapacity(software, 1<<20))
	assert.Empty(t, h.checkCapacity(rdmanet.Device{Name: "mlx5_0", Err: errors.New("busy")}, 1))
}

// A host whose processors nobody counted has lanes as well.
func TestLanes(t *testing.T) {
	for processors, want := range map[int]struct{ away, beside int }{
		0: {1, 1}, 1: {1, 1}, 2: {2, 1}, 3: {3, 2}, 8: {8, 4}, 9: {8, 5}, 16: {8, 8}, 64: {8, 8},
	} {
		h := host{maxProcs: processors}
		assert.Equal(t, want.away, h.lanes(false))
		assert.Equal(t, want.beside, h.lanes(true))
	}
}

// Where there is the software device alone, processes have half the lanes between them, and take half.
func TestLanesWithinTheHost(t *testing.T) {
	h := fakeHost(limited("0", "0", "1432").with(files{
		"sys/fs/cgroup/user.slice/memory.max": fmt.Sprint(100*2*perLane + 1<<20),
	}))
	h.maxProcs = 4
	assert.Equal(t, statusOK, one(t, h.checkMemory(100)).Status, "the cgroup leaves what two lanes for each take")
	c := h.checkDescriptors(costs{}, 100)
	assert.Equal(t, statusOK, c.Status)
	assert.Contains(t, c.Detail, "up to 2 lanes for each, take 1400, 7 for each lane")
	h = fakeHost(limited("0", "0", "1432"), roce())
	h.maxProcs = 4
	assert.Equal(t, statusFail, h.checkDescriptors(costs{}, 100).Status, "by the network there are four")
}
