package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

func TestCapacity(t *testing.T) {
	for name, tt := range map[string]struct {
		qp, cq, mr int
		want       status
		detail     string
	}{
		"enough":               {1000, 2000, 6000, statusOK, "connections to 1000 processes take 1000, 2000 and up to 6000"},
		"too few QPs":          {999, 2000, 6000, statusFail, "999 queue pairs where 1000 are needed"},
		"too few CQs":          {1000, 1999, 6000, statusFail, "1999 completion queues where 2000 are needed"},
		"too few MRs":          {1000, 2000, 1999, statusFail, "1999 memory regions where 2000 are needed"},
		"too few of all":       {1, 2, 3, statusFail, "1 queue pairs where 1000 are needed, 2 completion queues where 2000 are needed, 3 memory"},
		"enough MRs for a few": {1000, 2000, 5999, statusNote, "the rings of some stay small"},
	} {
		t.Run(name, func(t *testing.T) {
			d := roce()
			d.MaxQP, d.MaxCQ, d.MaxMR = tt.qp, tt.cq, tt.mr
			c := one(t, checkCapacity(d, 1000))
			assert.Equal(t, tt.want, c.Status)
			assert.Contains(t, c.Detail, tt.detail)
			assert.Equal(t, c.Status == statusFail, c.Mend != "")
		})
	}
	assert.Empty(t, checkCapacity(software, 1<<20))
	assert.Empty(t, checkCapacity(rdmanet.Device{Name: "mlx5_0", Err: errors.New("busy")}, 1))
}
