package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/internal/cli/commandtest"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
)

func TestMain(m *testing.M) { os.Exit(commandtest.Main(m.Run, main)) }

// device is the RDMA device that the programs should find.
func device() string {
	if name := os.Getenv("RDMANET_DEVICE"); name != "" {
		return name
	}
	return "soft0"
}

func TestAlone(t *testing.T) {
	for _, network := range []string{"rdma", "tcp", "kernel-tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-network", network, "-count", "20"))
			require.Zero(t, status, errs)
			for _, want := range []string{"server  process", "client  process", "1 KiB", "64 KiB", "1 MiB", "p99",
				"60 pages over 1 connection(s), every byte compared"} {
				assert.Contains(t, out, want)
			}
			if network == "rdma" {
				assert.Contains(t, out, "device "+device())
			}
		})
	}
}

func TestTwoEnds(t *testing.T) {
	here, _, err := endpoint.Config{Network: "rdma"}.Local()
	require.NoError(t, err)
	server := commandtest.Start(t, "-listen", here)
	for range 2 {
		out, errs, status := commandtest.Finish(t, commandtest.Program(t, "-dial", server.Address, "-size", "100001", "-count", "5"))
		require.Zero(t, status, errs)
		assert.Contains(t, out, "5 pages")
	}
	require.NoError(t, server.Process.Signal(os.Interrupt))
	_, errs, status := server.End()
	assert.Zero(t, status, "Ctrl-C is how a server ends: %s", errs)
}

func TestOutputThatIsFull(t *testing.T) { commandtest.RequireNoticesOutput(t, "-count", "1") }

func TestPages(t *testing.T) {
	s := httptest.NewServer(pages())
	defer s.Close()
	for path, want := range map[string]int{
		"/pages/0": 200, "/pages/17": 200, "/pages/-1": 400, "/pages/x": 400, "/pages/99999999999999999999": 400, "/": 404,
	} {
		resp, err := http.Get(s.URL + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, want, resp.StatusCode, path)
		if path == "/pages/17" {
			assert.Equal(t, newPage(17), body)
		}
	}
}

func TestFailures(t *testing.T) {
	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := newPage(1 << 10)
		page[500] ^= 1
		_, _ = w.Write(page)
	}))
	defer wrong.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := l.Addr().String()
	require.NoError(t, l.Close())
	here, _, err := endpoint.Config{Network: "rdma"}.Local()
	require.NoError(t, err)
	for _, c := range []struct {
		args   []string
		want   string
		status int
	}{
		{[]string{"-network", "kernel-tcp", "-dial", wrong.Listener.Addr().String()}, "not the 1024 of the page", command.ExitFailed},
		{[]string{"-network", "kernel-tcp", "-dial", nobody}, "refused", command.ExitFailed},
		{[]string{"-dial", strings.Replace(here, ":0", ":1", 1)}, "refused", command.ExitFailed},
		{[]string{"-device", "nosuch0"}, "nosuch0", command.ExitFailed},
		{[]string{"-listen", "127.0.0.1:nonsense"}, "nonsense", command.ExitFailed},
		{[]string{"-size", "0"}, "not between", command.ExitUsage},
		{[]string{"-count", "-1"}, "not at least", command.ExitUsage},
		{[]string{"-network", "udp"}, "unknown network", command.ExitUsage},
		{[]string{"-listen", ":0", "-size", "1"}, "belong to the client", command.ExitUsage},
		{[]string{"-debug", "127.0.0.1:0"}, "use it with -listen", command.ExitUsage},
		{[]string{"-listen", ":0", "-dial", ":0"}, "two ends", command.ExitUsage},
		{[]string{"-nonsense"}, "not defined", command.ExitUsage},
		{[]string{"file"}, "unexpected argument", command.ExitUsage},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			_, errs, status := commandtest.Finish(t, commandtest.Program(t, c.args...))
			assert.Equal(t, c.status, status)
			assert.Contains(t, errs, c.want)
		})
	}
}
