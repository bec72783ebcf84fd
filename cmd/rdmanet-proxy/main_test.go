package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/internal/cli/commandtest"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
	"github.com/rdmanet/go-rdmanet/internal/leaktest"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// TestMain fails the run if the proxies leave anything behind.
func TestMain(m *testing.M) {
	os.Exit(commandtest.Main(func() int {
		if err := openDevice(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		before := leaktest.Take()
		code := m.Run()
		if leaked := before.Wait(rings); leaked != "" && code == 0 {
			fmt.Fprintf(os.Stderr, "leaked after all tests:\n%s", leaked)
			return 1
		}
		return code
	}, main))
}

// openDevice has the process open what it opens once for a device: that is no leak.
func openDevice() error {
	rdma := endpoint.Config{Network: "rdma"}
	address, _, err := rdma.Local()
	if err != nil {
		return err
	}
	l, err := rdma.Listen(context.Background(), address)
	if err != nil {
		return err
	}
	conn, err := rdma.Dial(context.Background(), l.Addr().String())
	if err == nil {
		err = conn.Close()
	}
	return errors.Join(err, l.Close())
}

func rings() string {
	if n := rdmanet.MemoryInUse(); n > 0 {
		return fmt.Sprintf("%d bytes of rings\n", n)
	}
	return ""
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "say with -listen"},
		{"-listen tcp://:0", "say with -listen"},
		{"-to tcp://:1", "say with -listen"},
		{"-listen 127.0.0.1:0 -to tcp://:1", "write it as scheme://address, as tcp://127.0.0.1:0"},
		{"-listen udp://:0 -to tcp://:1", `unknown scheme "udp"`},
		{"-listen tcp:// -to tcp://:1", "address is missing"},
		{"-listen tcp://:0 -to rdma://host", "missing port"},
		{"-listen tcp://127.0.0.1:nonsense -to tcp://:1", "nonsense"},
		{"-listen tcp://127.0.0.1:65536 -to tcp://:1", "invalid port"},
		{"-listen tcp://127.0.0.1:-1 -to tcp://:1", "invalid port"},
		{"-listen tcp://:0 -to tcp://127.0.0.1:5432/base", "5432/base"},
		{"-listen tcp://:0 -to rdma://host:0", "-to rdma://host:0: the port is missing"},
		{"-listen tcp://:0 -to rdma://host:", "-to rdma://host:: the port is missing"},
		{"-listen tcp://::1:7000 -to tcp://:1", "too many colons"},
		{"-listen tcp4://[::1]:0 -to tcp://:1", "::1 is no IPv4 address"},
		{"-listen tcp://:0 -to rdma6://127.0.0.1:1", "127.0.0.1 is no IPv6 address"},
		{"-listen tcp://:0 -to rdma://192.0.2.300:1", `"192.0.2.300" is neither`},
		{"-listen tcp://:0 -to rdma://user@host:1", `"user@host" is neither`},
		{"-listen unix:///" + strings.Repeat("x", 107) + " -to tcp://:1", "the path has 108 bytes"},
		{"-listen tcp://:7000 -to tcp://:7000", "its own server"},
		{"-listen tcp://:0 -to rdma://:1 -device nosuch0", "-device nosuch0: no such RDMA device"},
		{"-listen rdma://:0 -to tcp://:1 -device nosuch0", "-device nosuch0: no such RDMA device"},
		{"-listen tcp://:0 -to rdma://:1 -timeout soon", "invalid value"},
		{"-listen tcp://:0 -to rdma://:1 -drain 5", "invalid value"},
		{"-listen tcp://:0 -to unix:///run/x -device soft0", "neither tcp://:0 nor unix:///run/x is RDMA's"},
		{"-listen tcp://:0 -to rdma://:1 -timeout 0s", "-timeout 0s is not above 0"},
		{"-listen tcp://:0 -to rdma://:1 -drain -1s", "-drain -1s is below 0"},
		{"-nonsense", "not defined: -nonsense"},
		{"rdma://:1", `unexpected argument "rdma://:1"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, errs, status := commandtest.Finish(t, commandtest.Program(t, strings.Fields(c.args)...))
			assert.Equal(t, command.ExitUsage, status)
			assert.Contains(t, errs, c.want)
			assert.Empty(t, out)
		})
	}
	_, errs, status := commandtest.Finish(t, commandtest.Program(t, "-h"))
	assert.Zero(t, status)
	assert.Contains(t, errs, "Usage of rdmanet-proxy")
	assert.Contains(t, errs, "rdmanet-proxy -listen tcp://127.0.0.1:6432 -to rdma://SERVER:7000")
}

func TestFailuresToListen(t *testing.T) {
	for _, c := range []struct {
		listen string
		want   string
	}{
		{"tcp://192.0.2.1:0", "192.0.2.1"},
		{"rdma://192.0.2.1:0", "192.0.2.1"},
		{"unix:///does/not/exist", "no such file"},
	} {
		_, errs, status := commandtest.Finish(t, commandtest.Program(t, "-listen", c.listen, "-to", "rdma://127.0.0.1:1"))
		assert.Equal(t, command.ExitFailed, status)
		assert.Contains(t, errs, "rdmanet-proxy: ")
		assert.Contains(t, errs, c.want)
	}
}

func TestOutputThatIsFull(t *testing.T) {
	commandtest.RequireNoticesOutput(t, "-listen", "tcp://127.0.0.1:0", "-to", "tcp://127.0.0.1:1")
}

func TestPlaces(t *testing.T) {
	for s, want := range map[string]place{
		"tcp://127.0.0.1:5432":               {endpoint.Config{Network: "kernel-tcp"}, "127.0.0.1:5432"},
		"rdma+tcp4://127.0.0.1:7000":         {endpoint.Config{Network: "tcp4"}, "127.0.0.1:7000"},
		"rdma://:7000":                       {endpoint.Config{Network: "rdma"}, ":7000"},
		"rdma6://[::1]:0":                    {endpoint.Config{Network: "rdma6"}, "[::1]:0"},
		"unix:///run/postgresql/.s.PGSQL.54": {endpoint.Config{Network: "unix"}, "/run/postgresql/.s.PGSQL.54"},
	} {
		var p place
		assert.NoError(t, p.set(s))
		assert.NoError(t, p.Check())
		assert.Equal(t, want, p)
		assert.Equal(t, s, p.String())
	}
}
