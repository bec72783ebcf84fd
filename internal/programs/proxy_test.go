package programs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildProxy builds cmd/rdmanet-proxy, once; removeProxy removes it.
var buildProxy = sync.OnceValues(func() (program string, err error) {
	dir, err := os.MkdirTemp("", "rdmanet-programs")
	if err != nil {
		return "", err
	}
	proxyDir = dir
	program = filepath.Join(dir, "proxy")
	out, err := exec.Command("go", "build", "-o", program, "github.com/rdmanet/go-rdmanet/cmd/rdmanet-proxy").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build cmd/rdmanet-proxy: %w\n%s", err, out)
	}
	return program, err
})

var proxyDir string

func removeProxy() {
	if proxyDir != "" {
		_ = os.RemoveAll(proxyDir)
	}
}

// A proxy is a running cmd/rdmanet-proxy.
type proxy struct {
	cmd     *exec.Cmd
	address string // where it listens, without the scheme

	read      chan struct{} // closed when there is no more output
	out, errs bytes.Buffer
}

// startProxy starts a proxy; when the test ends it is ended as its users end it, and all
// bytes of its connections must have gone by RDMA.
func startProxy(t *testing.T, from, to string) *proxy {
	t.Helper()
	program, err := buildProxy()
	require.NoError(t, err)
	p := &proxy{cmd: exec.Command(program, "-listen", from, "-to", to), read: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = &p.errs
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	go func() {
		defer close(p.read)
		_, _ = io.Copy(&p.out, lines)
	}()
	t.Cleanup(func() { p.stop(t) })
	require.NoError(t, err, "proxy from %s to %s", from, to)
	_, p.address, _ = strings.Cut(strings.TrimSpace(line), "://")
	return p
}

var statistics = regexp.MustCompile(`^connections: (\d+), could not reach the server: (\d+), broken: (\d+), cut off: (\d+); there: .*, back: .*; RDMA copied: 0 B, placed without a copy: (.*)\n$`)

func (p *proxy) stop(t *testing.T) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.read
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if !assert.True(t, err == nil || errors.As(err, &exit), err) {
		return
	}
	assert.Zero(t, p.cmd.ProcessState.ExitCode(), "the proxy: %s", p.errs.String())
	m := statistics.FindStringSubmatch(p.out.String())
	if !assert.NotNil(t, m, "the proxy's statistics: %q", p.out.String()) {
		return
	}
	t.Logf("%s", m[0])
	assert.NotEqual(t, "0", m[1], "connections")
	assert.Equal(t, "0", m[2], "connections that could not reach the server: %s", p.errs.String())
	assert.Equal(t, "0", m[4], "connections that were cut off")
	assert.NotEqual(t, "0 B", m[5], "bytes that went by RDMA")
}

// behindProxies starts a pair of proxies in front of a TCP server and returns the TCP
// address at which its clients find it: TCP, RDMA, TCP.
func behindProxies(t *testing.T, server string) (address string) {
	t.Helper()
	return startProxy(t, "tcp://127.0.0.1:0", "rdma://"+besideServer(t, server)).address
}

// besideServer starts the proxy that stands beside a TCP server and returns its RDMA
// address, for programs that use rdmanet themselves.
func besideServer(t *testing.T, server string) (address string) {
	t.Helper()
	return startProxy(t, "rdma://127.0.0.1:0", "tcp://"+server).address
}
