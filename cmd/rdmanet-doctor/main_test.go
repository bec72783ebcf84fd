package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// program runs the doctor on a host.
func program(h host, args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = run(context.Background(), args, func() host { return h }, &out, &errs)
	return out.String(), errs.String(), status
}

func TestExitStatus(t *testing.T) {
	sick := roceHost()
	sick.devices[1].Ports[0].State = verbs.PortDown
	for _, tt := range []struct {
		name string
		host host
		args []string
		want int
	}{
		{"everything works", roceHost(), nil, 0},
		{"no hardware", fakeHost(plain), []string{"-json"}, 0},
		{"no RDMA", host{goos: "plan9"}, nil, 0},
		{"a check failed", sick, nil, command.ExitFailed},
		{"a check failed in JSON", sick, []string{"-json"}, command.ExitFailed},
		{"the other device", sick, []string{"-device", "soft0"}, 0},
		{"help", roceHost(), []string{"-help"}, 0},
		{"unknown flag", roceHost(), []string{"-no-such-flag"}, command.ExitUsage},
		{"argument", roceHost(), []string{"rxe0"}, command.ExitUsage},
		{"no connections", roceHost(), []string{"-connections", "0"}, command.ExitUsage},
		{"too many connections", roceHost(), []string{"-connections", "9999999"}, command.ExitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := program(tt.host, tt.args...)
			assert.Equal(t, tt.want, status)
			assert.Equal(t, status == command.ExitUsage || tt.name == "help", stderr != "", stderr)
			assert.Equal(t, stderr == "", stdout != "", "a report or a message, never both")
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	assert.Equal(t, command.ExitInterrupted, run(ctx, nil, roceHost, &out, &errs))
	assert.Equal(t, "rdmanet-doctor: interrupted\n", errs.String())
	assert.Empty(t, out.String())
}

// On the real host both reports agree, and the software device works wherever there is one.
func TestHere(t *testing.T) {
	h := thisHost()
	stdout, stderr, status := program(h, "-json", "-device", "soft0")
	require.Empty(t, stderr)
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	assert.Equal(t, h.goos+"/"+h.goarch, r.System)
	text, _, _ := program(h, "-device", "soft0")
	if !h.supported() {
		assert.Zero(t, status)
		assert.Contains(t, text, "RDMA is not supported")
		return
	}
	assert.Contains(t, text, "ok    self-test      soft0: 1 MiB there and back")
	require.Len(t, r.Devices, 1)
	assert.Equal(t, "software", r.Devices[0].Transport)
	assert.NotEmpty(t, r.Devices[0].Addresses)
	assert.NotEmpty(t, r.Devices[0].Ports[0].GIDs)
}
