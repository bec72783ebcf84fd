package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestRPFilter(t *testing.T) {
	second := roce()
	second.Name = "rxe1"
	second.Ports[0].GIDs = []rdmanet.GID{{Type: verbs.GIDTypeRoCEv2, NetDev: "eth1"}}
	with := func(all, eth0, eth1 string) files {
		const conf = "proc/sys/net/ipv4/conf/"
		return withRoCE.with(files{conf + "all/rp_filter": all, conf + "eth0/rp_filter": eth0, conf + "eth1/rp_filter": eth1})
	}
	for name, tt := range map[string]struct {
		files files
		want  status
		fix   string
	}{
		"none":            {with("0", "0", "0"), statusOK, ""},
		"loose":           {with("2", "1", "1"), statusOK, ""},
		"strict on all":   {with("1", "0", "0"), statusNote, "sudo sysctl -w net.ipv4.conf.eth0.rp_filter=2 net.ipv4.conf.eth1.rp_filter=2"},
		"strict on one":   {with("0", "0", "1"), statusNote, "sudo sysctl -w net.ipv4.conf.eth1.rp_filter=2"},
		"loose on one":    {with("1", "2", "0"), statusNote, "sudo sysctl -w net.ipv4.conf.eth1.rp_filter=2"},
		"not to be known": {withRoCE, statusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(tt.files, roce(), second)
			c := one(t, h.checkRPFilter())
			assert.Equal(t, "eth0 and eth1", c.Subject)
			assert.Equal(t, tt.want, c.Status)
			assert.Equal(t, tt.fix, c.Fix)
		})
	}
	h := fakeHost(with("1", "1", "1"), roce())
	assert.Empty(t, h.checkRPFilter(), "there is only one")
	second.Ports[0].GIDs[0].NetDev = "eth0"
	h = fakeHost(with("1", "1", "1"), roce(), second)
	assert.Empty(t, h.checkRPFilter(), "both devices are of one")
}
