package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKernelVersion(t *testing.T) {
	for release, want := range map[string]status{
		"6.12.5-amd64": statusOK, "5.1.0": statusOK, "5.10.0-28-amd64": statusOK, "10.0": statusOK,
		"5.0.21": statusNote, "4.18.0-553.el8_10.x86_64": statusNote,
	} {
		h := fakeHost(withRoCE.with(files{"proc/sys/kernel/osrelease": release}), roce())
		c := one(t, h.checkKernelVersion())
		assert.Equal(t, want, c.Status, release)
		assert.Contains(t, c.Detail, release)
		assert.Equal(t, want != statusOK, c.Fix != "")
	}
	for _, f := range []files{withRoCE, withRoCE.with(files{"proc/sys/kernel/osrelease": "next"}), plain.with(files{"proc/sys/kernel/osrelease": "4.4"})} {
		h := fakeHost(f)
		assert.Empty(t, h.checkKernelVersion())
	}
}
