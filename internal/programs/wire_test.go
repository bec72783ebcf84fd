package programs

import (
	"context"
	"crypto/tls"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/selfsigned"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// patience bounds what a test waits for; nothing takes that long.
const patience = 30 * time.Second

// A wire is a listener of rdmanet's and the way to it. What it accepts and dials is
// given out as it is, and remembered: when the test ends it must have been used.
type wire struct {
	net.Listener // nil if others listen
	address      string
	dialer       rdmanet.Dialer

	mu                sync.Mutex
	accepted, dialled []*rdmanet.Conn
}

func newWire(t *testing.T) *wire {
	t.Helper()
	return newSizedWire(t, 0)
}

// newSizedWire is a wire with rings of this size from the beginning; 0 is
// the default.
func newSizedWire(t *testing.T, readBuffer int) *wire {
	t.Helper()
	lc := rdmanet.ListenConfig{ReadBuffer: readBuffer}
	l, err := lc.Listen(t.Context(), "rdma", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{Listener: l, address: l.Addr().String(), dialer: rdmanet.Dialer{ReadBuffer: readBuffer}}
	t.Cleanup(func() {
		_ = l.Close()
		w.prove(t)
	})
	return w
}

// dialsTo is the way to a listener of another process.
func dialsTo(t *testing.T, address string) *wire {
	w := &wire{address: address}
	t.Cleanup(func() { w.prove(t) })
	return w
}

// prove fails the test if its bytes took another way.
func (w *wire) prove(t *testing.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var accepted, dialled uint64
	for _, c := range w.accepted {
		accepted += c.Stats().BytesRead
	}
	for _, c := range w.dialled {
		dialled += c.Stats().BytesWritten
	}
	assert.Positive(t, dialled, "bytes that clients wrote to rdmanet's connections")
	if w.Listener != nil {
		assert.Positive(t, accepted, "bytes that servers read from rdmanet's connections")
	}
}

// Accept accepts what must be a connection of rdmanet's.
func (w *wire) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted = append(w.accepted, conn.(*rdmanet.Conn))
	return conn, nil
}

// Dial connects to the listener.
func (w *wire) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := w.dialer.DialContext(ctx, "rdma", w.address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialled = append(w.dialled, conn.(*rdmanet.Conn))
	return conn, nil
}

// count counts the connections that have been dialled.
func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.dialled)
}

// pair returns both ends of a connection.
func (w *wire) pair() (client, server net.Conn, err error) {
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = w.Accept()
		accepted <- err
	}()
	if client, err = w.Dial(context.Background()); err != nil {
		return nil, nil, err
	}
	if err := <-accepted; err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return client, server, nil
}

// serverName is what the certificate of tlsConfigs is for.
const serverName = "rdma.example.test"

// tlsConfigs are the settings of a server with a new certificate and of a client that
// trusts it.
func tlsConfigs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	server, client, err := selfsigned.Configs(serverName)
	require.NoError(t, err)
	return server, client
}

// random returns n bytes that are the same for the same seed.
func random(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = mathrand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// together runs f n times at once and returns the first error.
func together(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() {
			if err := f(i); err != nil {
				errs <- fmt.Errorf("number %d: %w", i, err)
				return
			}
			errs <- nil
		}()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// casesOf is the test of which a child process runs some cases.
const casesOf = "PROGRAMS_TEST_CASES_OF"

// runCases runs those subtests of a test whose names match: in a child process, since
// nettest has no other way to leave one out.
func runCases(t *testing.T, names string, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(casesOf) == t.Name() {
		test(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$/^("+names+")$")
	cmd.Env = append(os.Environ(), casesOf+"="+t.Name(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	want := strings.Split(names, "|")
	require.Len(t, regexp.MustCompile(`(?m)^ +--- PASS: `+t.Name()+"/").FindAll(out, -1), len(want), "%s", out)
}
