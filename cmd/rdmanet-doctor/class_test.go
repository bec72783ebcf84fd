package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// withCard is a machine with a RoCE card, of two ports.
var withCard = withRoCE.without("sys/class/infiniband/rxe0/parent").with(files{"sys/class/infiniband/rxe0/node_type": "1: CA"})

func TestClass(t *testing.T) {
	const (
		config = "sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_tos"
		trust  = "sys/class/net/eth0/qos/trust"
	)
	for name, tt := range map[string]struct {
		files  files
		want   status
		detail string
		fix    string
	}{
		"not to be seen": {withCard, statusNote, "not to be seen", ""},
		"none":           {withCard.with(files{config: "0"}), statusNote, "default DSCP is 0", "cma_roce_tos -d rxe0 -p 1 -t 4*DSCP"},
		"26":             {withCard.with(files{config: "104"}), statusOK, "the default DSCP is 26 (TOS 104)", ""},
		"vendor's file":  {withCard.with(files{"sys/class/infiniband/rxe0/tc/1/traffic_class": "104"}), statusOK, "DSCP is 26", ""},
		"trusts DSCP":    {withCard.with(files{config: "104", trust: "dscp"}), statusOK, "DSCP is 26", ""},
		"trusts VLAN":    {withCard.with(files{config: "104", trust: "pcp"}), statusNote, "by their VLAN priority", "mlnx_qos -i eth0 --trust dscp"},
		"no number":      {withCard.with(files{config: "high"}), statusNote, "not to be seen", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(tt.files, roce())
			c := one(t, h.checkClass(roce()))
			assert.Equal(t, tt.want, c.Status)
			assert.Contains(t, c.Detail, tt.detail)
			assert.Equal(t, tt.fix, c.Fix)
		})
	}
	h := roceHost()
	assert.Empty(t, h.checkClass(roce()), "soft-RoCE has no classes")
	h = fakeHost(withCard, roce())
	assert.Empty(t, h.checkClass(software))
	down := roce()
	down.Ports[0].State = verbs.PortDown
	assert.Empty(t, h.checkClass(down))
}
