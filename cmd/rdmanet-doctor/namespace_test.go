package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNamespace(t *testing.T) {
	const mode = "sys/module/ib_core/parameters/netns_mode"
	h := roceHost()
	assert.Contains(t, one(t, h.checkNamespace()).Detail, "shared")

	h = fakeHost(withRoCE.with(files{mode: "N"}))
	c := one(t, h.checkNamespace())
	assert.Equal(t, statusOK, c.Status)
	assert.Contains(t, c.Detail, "exclusive")

	h = fakeHost(withRoCE.with(files{mode: "N"}).without("sys/class/infiniband"))
	c = one(t, h.checkNamespace())
	assert.Equal(t, check{"namespace", "", statusNote, "exclusive: rxe0 belongs to another network namespace",
		"sudo nsenter --net=/proc/1/ns/net /usr/bin/rdmanet-doctor"}, c)

	h = fakeHost(withRoCE.with(files{mode: "N", ".dockerenv": ""}).without("sys/class/infiniband"))
	assert.Equal(t, "docker run --network host IMAGE", one(t, h.checkNamespace()).Fix)

	h = fakeHost(plain)
	assert.Empty(t, h.checkNamespace())
}
