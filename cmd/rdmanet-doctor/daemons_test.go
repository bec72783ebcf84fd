package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/rdmanet"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestDaemons(t *testing.T) {
	of := func(transport verbs.Transport, f files) host {
		return fakeHost(f, rdmanet.Device{Name: "x0", Transport: transport})
	}
	for _, tt := range []struct {
		transport verbs.Transport
		name      string
	}{{verbs.TransportIB, "ibacm"}, {verbs.TransportIWARP, "iwpmd"}} {
		h := of(tt.transport, withRoCE.with(files{"proc/1/comm": "init", "proc/sys/comm": tt.name}))
		c := one(t, h.checkDaemons())
		assert.Equal(t, tt.name, c.Subject)
		assert.Equal(t, statusNote, c.Status)
		assert.Contains(t, c.Detail, "does not run")
		assert.Equal(t, "systemctl enable --now "+tt.name, c.Fix)

		h = of(tt.transport, withRoCE.with(files{"proc/1/comm": "init", "proc/77/comm": tt.name}))
		c = one(t, h.checkDaemons())
		assert.Equal(t, statusOK, c.Status)
		assert.Empty(t, c.Fix)
	}
	h := roceHost()
	assert.Empty(t, h.checkDaemons(), "RoCE needs neither")
}
