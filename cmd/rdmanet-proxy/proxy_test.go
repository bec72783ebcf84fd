package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/command"
	"github.com/rdmanet/go-rdmanet/internal/cli/commandtest"
	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
	"github.com/rdmanet/go-rdmanet/internal/syncbuffer"
)

// startProgram starts the proxy as a process; from is where it listens.
func startProgram(t *testing.T, from, to place, args ...string) (program *commandtest.Server, at place) {
	t.Helper()
	program = commandtest.Start(t, append([]string{"-listen", from.String(), "-to", to.String()}, args...)...)
	require.NoError(t, from.set(program.Address))
	return program, from
}

// echoServer is a TCP server that echoes.
func echoServer(t *testing.T) place {
	t.Helper()
	at := local(t, "tcp")
	l, err := at.Listen(t.Context(), at.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	at.address = l.Addr().String()
	return at
}

// echo sends a message to an echo server and waits for its return.
func echo(conn net.Conn) error {
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 5))
	return err
}

// requireReset connects to a proxy that cannot reach its server.
func requireReset(t *testing.T, at place) {
	t.Helper()
	conn, err := at.Dial(t.Context(), at.address)
	if err == nil {
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Read(make([]byte, 1))
	}
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}

// refused waits until nobody listens at a place.
func refused(t *testing.T, at place) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		conn, err := at.Dial(t.Context(), at.address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = conn.Close()
		}
		require.True(t, time.Now().Before(end), "%s still takes clients", at)
	}
}

func TestTwoProcesses(t *testing.T) {
	back, middle := startProgram(t, local(t, "rdma"), echoServer(t), "-v")
	front, entry := startProgram(t, local(t, "tcp"), middle)
	conn := dial(t, entry)
	require.NoError(t, echo(conn))
	require.NoError(t, conn.Close())
	for _, p := range []*commandtest.Server{front, back} {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		out, errs, status := p.End()
		assert.Zero(t, status, errs)
		assert.Equal(t, "connections: 1, could not reach the server: 0, broken: 0, cut off: 0; there: 5 B, back: 5 B; RDMA copied: 0 B, placed without a copy: 10 B\n", out)
		const line = ": 5 B there, 5 B back in "
		if p == back {
			assert.Contains(t, errs, line)
		} else {
			assert.NotContains(t, errs, line)
		}
	}
}

func TestKilledProxyResetsBothEnds(t *testing.T) {
	for _, name := range []string{"front", "back"} {
		t.Run(name, func(t *testing.T) {
			at := local(t, "tcp")
			l, err := at.Listen(t.Context(), at.address)
			require.NoError(t, err)
			defer l.Close()
			at.address = l.Addr().String()
			back, middle := startProgram(t, local(t, "rdma"), at)
			front, entry := startProgram(t, local(t, "tcp"), middle)
			client := dial(t, entry)
			server, err := l.Accept()
			require.NoError(t, err)
			defer server.Close()
			require.NoError(t, server.SetDeadline(time.Now().Add(patience)))

			killed, left, end := front, back, server
			if name == "back" {
				killed, left, end = back, front, client
			}
			require.NoError(t, killed.Process.Kill())
			_, err = end.Read(make([]byte, 1))
			assert.ErrorIs(t, err, syscall.ECONNRESET, "the proxy that is left resets its side")
			_, _, _ = killed.End()

			// It goes on, and does better when the other is there again.
			if name == "back" {
				requireReset(t, entry)
				_, _ = startProgram(t, middle, at)
				conn := dial(t, entry)
				server, err := l.Accept()
				require.NoError(t, err)
				_, err = server.Write([]byte("!"))
				require.NoError(t, err)
				_, err = io.ReadFull(conn, make([]byte, 1))
				require.NoError(t, err)
				require.NoError(t, errors.Join(server.Close(), conn.Close()))
			}
			require.NoError(t, left.Process.Signal(os.Interrupt))
			out, errs, status := left.End()
			assert.Zero(t, status, errs)
			assert.Contains(t, out, "broken: 1, cut off: 0;")
			if name == "back" {
				assert.Contains(t, out, "connections: 3, could not reach the server: 1,")
				assert.Contains(t, errs, "cannot reach "+middle.String())
				assert.Contains(t, errs, "connection refused")
			}
		})
	}
}

func TestServerThatCannotBeReached(t *testing.T) {
	nobody := local(t, "rdma")
	l, err := nobody.Listen(t.Context(), nobody.address)
	require.NoError(t, err)
	nobody.address = l.Addr().String()
	require.NoError(t, l.Close())
	p := start(t, local(t, "tcp"), nobody)
	requireReset(t, p.at)
	require.NoError(t, p.stop())
	assert.Contains(t, p.log.String(), ": cannot reach "+nobody.String()+": dial rdma "+nobody.address)
	assert.Contains(t, p.total(), "connections: 1, could not reach the server: 1, broken: 0")
}

func TestEndWaitsForOpenConnections(t *testing.T) {
	for _, how := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p, at := startProgram(t, local(t, "rdma"), echoServer(t), "-drain", "1h")
		conn := dial(t, at)
		require.NoError(t, echo(conn))
		require.NoError(t, p.Process.Signal(how))
		refused(t, at)
		require.NoError(t, echo(conn), "the open connection goes on")
		p.AwaitError(t, "which may go on for 1h0m0s") // while there is one
		require.NoError(t, conn.Close())
		out, errs, status := p.End()
		assert.Zero(t, status, errs)
		// Dials that ended with a refusal may have come in before.
		assert.Regexp(t, "open connections: [1-9][0-9]*, which may go on for 1h0m0s", errs)
		assert.Contains(t, out, "broken: 0, cut off: 0; there: 10 B, back: 10 B")
	}
}

func TestEndCutsOffWhatDoesNotEnd(t *testing.T) {
	p, at := startProgram(t, local(t, "rdma"), echoServer(t), "-drain", "10ms")
	conn := dial(t, at)
	require.NoError(t, echo(conn))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	_, err := conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	out, errs, status := p.End()
	assert.Equal(t, command.ExitFailed, status)
	assert.Contains(t, errs, "rdmanet-proxy: connections that did not end within 10ms and were cut off: 1")
	assert.Contains(t, out, "cut off: 1; there: 5 B, back: 5 B")
}

// A client whose server has not answered when the time is up did not end by itself.
func TestEndCutsOffWhoIsStillDialled(t *testing.T) {
	for _, scheme := range []string{"rdma", "tcp"} {
		full := local(t, scheme)
		l, err := full.Listen(t.Context(), full.address)
		require.NoError(t, err)
		defer l.Close()
		full.address = l.Addr().String()
		clients, proxied := net.Pipe()
		defer clients.Close()
		p := &proxy{options: options{to: full}, log: log.New(io.Discard, "", 0)}
		cut, cutOff := context.WithCancel(t.Context())
		cutOff() // as if the server did not answer
		p.carry(cut, proxied)
		assert.Contains(t, p.total(), "connections: 1, could not reach the server: 0, broken: 0, cut off: 1;", scheme)
	}
}

func TestSecondInterruptDoesNotWait(t *testing.T) {
	p, at := startProgram(t, local(t, "rdma"), echoServer(t), "-drain", "1h")
	conn := dial(t, at)
	require.NoError(t, echo(conn))
	require.NoError(t, p.Process.Signal(os.Interrupt))
	refused(t, at)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	_, err := conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	_, errs, status := p.End()
	assert.Equal(t, command.ExitInterrupted, status)
	assert.Contains(t, errs, "rdmanet-proxy: interrupted")
}

// A stuckConn waits in Close for a peer that takes nothing in.
type stuckConn struct {
	net.Conn
	closing, gone chan struct{}
}

func (c *stuckConn) Close() error {
	close(c.closing)
	<-c.gone
	return c.Conn.Close()
}

func (c *stuckConn) CloseWrite() error { return endpoint.CloseWrite(c.Conn) }

// Nor does the end of the proxy wait for the last bytes of a connection whose directions have ended, when it cuts
// off or is interrupted.
func TestEndDoesNotWaitForLastBytes(t *testing.T) {
	at := local(t, "tcp")
	l, err := at.Listen(t.Context(), at.address)
	require.NoError(t, err)
	defer l.Close()
	at.address = l.Addr().String()
	client := dial(t, at)
	stuck := &stuckConn{accept(t, l), make(chan struct{}), make(chan struct{})}
	p := &proxy{options: options{to: echoServer(t)}, log: log.New(io.Discard, "", 0)}
	cut, cutOff := context.WithCancel(t.Context())
	defer cutOff()
	carried := make(chan struct{})
	go func() {
		p.carry(cut, stuck)
		close(carried)
	}()
	require.NoError(t, send(client, []byte("hello")))
	_, err = io.ReadAll(client)
	require.NoError(t, err)
	<-stuck.closing
	cutOff()
	select {
	case <-carried:
	case <-time.After(patience):
		t.Error("it waits")
	}
	close(stuck.gone)
	<-carried
	assert.Contains(t, p.total(), "connections: 1, could not reach the server: 0, broken: 0, cut off: 1; there: 5 B, back: 5 B")
}

// A client that was just accepted is among the open connections, though nothing has been done for it.
func TestEndKnowsOfTheLastClient(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that nothing has
	nobody := local(t, "tcp")
	nobody.address = "127.0.0.1:0"
	stop, stopped := context.WithCancel(t.Context())
	var said syncbuffer.Buffer
	p := &proxy{options: options{to: nobody, drain: time.Hour}, log: log.New(&said, "", 0)}
	require.NoError(t, p.serve(stop, t.Context(), &lastClient{stopped: stopped}))
	assert.Contains(t, said.String(), "open connections: 1, which may go on for 1h0m0s")
	assert.Zero(t, p.open.Load())
}

// lastClient is a listener with one client, which is told to stop behind it.
type lastClient struct {
	net.Listener
	stopped func()
	told    bool
}

func (l *lastClient) Accept() (net.Conn, error) {
	if l.told {
		return nil, net.ErrClosed
	}
	l.told = true
	l.stopped()
	conn, _ := net.Pipe()
	return conn, nil
}

func (l *lastClient) Close() error { return nil }

// scriptedListener answers Accept with what it is given, and then waits for Close.
type scriptedListener struct {
	net.Listener
	errs   []error
	closed chan struct{}
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		<-l.closed
		return nil, net.ErrClosed
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	if err == nil {
		conn, _ := net.Pipe()
		return conn, nil
	}
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
}

func (l *scriptedListener) Close() error { return nil }

func TestAcceptGoesOnAfterPassingErrors(t *testing.T) {
	var text syncbuffer.Buffer
	p := &proxy{log: log.New(&text, "", 0)}
	accepted := 0
	err := p.accept(t.Context(), &scriptedListener{errs: []error{syscall.EMFILE, syscall.ENFILE, nil, syscall.ECONNABORTED, nil, syscall.ENODEV}}, func(net.Conn) { accepted++ })
	assert.ErrorIs(t, err, syscall.ENODEV, "this one does not pass")
	assert.Equal(t, 2, accepted)
	assert.Contains(t, text.String(), "too many open files; trying again in 5ms")
	assert.Contains(t, text.String(), "too many open files in system; trying again in 10ms")
	assert.Contains(t, text.String(), "connection abort; trying again in 5ms", "the pauses begin anew after a success")
}
