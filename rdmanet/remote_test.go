//go:build linux

package rdmanet

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A remote is a process of this test binary that holds one end of connections and
// does what it is told over its standard input and output.
type remote struct {
	t      testing.TB
	cmd    *exec.Cmd
	client *rpc.Client
	killed bool
	end    func() // sees it end, which it does when it is asked for nothing more
}

const remoteRole = "remote"

func init() { roles[remoteRole] = serveRemote }

// roleCommand is this test binary in a role.
func roleCommand(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// Under the race detector a process would sleep for a second before it ends.
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	return cmd
}

// startRemote starts one. When the test ends it has to leave nothing behind.
func startRemote(t testing.TB) *remote {
	t.Helper()
	r := &remote{t: t, cmd: roleCommand(remoteRole)}
	r.cmd.Stderr = os.Stderr
	in, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	r.client = rpc.NewClient(pipes{out, in})
	r.end = sync.OnceFunc(func() {
		_ = in.Close() // it answers what is asked already, and ends
		patient := lasting
		if t.Failed() {
			patient = patience / 3 // it may still be busy with what nobody waits for
		}
		hung := time.AfterFunc(patient, func() { _ = r.cmd.Process.Signal(syscall.SIGABRT) })
		err := r.cmd.Wait()
		hung.Stop()
		_ = r.client.Close()
		if err != nil && !r.killed { // not by FailNow, which a OnceFunc takes for a panic
			t.Errorf("the other process leaked something: %v", err)
		}
	})
	t.Cleanup(r.end)
	return r
}

// pipes are the two standard streams of a process as one.
type pipes struct {
	io.ReadCloser
	w io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.w.Write(b) }

func (p pipes) Close() error { return errors.Join(p.w.Close(), p.ReadCloser.Close()) }

// call has the process run a method.
func call[T any](r *remote, method string, args any) T {
	r.t.Helper()
	var reply T
	require.NoError(r.t, r.client.Call("Remote."+method, args, &reply), method)
	return reply
}

// begin is call without waiting. A reply that never comes, as from a killed
// process, closes the channel.
func begin[T any](r *remote, method string, args any) <-chan T {
	done := make(chan T, 1)
	go func() {
		defer close(done)
		var reply T
		if r.client.Call("Remote."+method, args, &reply) == nil {
			done <- reply
		}
	}()
	return done
}

// kill ends the process as nothing can be prepared for, and returns when a pipe told
// that it was gone.
func (r *remote) kill() (death time.Time) {
	r.t.Helper()
	r.killed = true
	gone := begin[int](r, "Live", 0)
	require.NoError(r.t, r.cmd.Process.Kill())
	<-gone
	return time.Now()
}

// accept takes the connection that was dialled to the process last.
func (r *remote) accept() *remoteConn {
	r.t.Helper()
	return r.conn(call[RemoteEnd](r, "Accept", 0))
}

func (r *remote) conn(e RemoteEnd) *remoteConn { return &remoteConn{r: r, RemoteEnd: e} }

// dial connects to a listener of the process and returns both ends.
func (r *remote) dial(fl flavour) (*Conn, *remoteConn) {
	r.t.Helper()
	at := call[string](r, "Listen", RemoteListen{Flavour: fl.name})
	c, err := fl.dialer.dial(context.Background(), "rdma", at)
	require.NoError(r.t, err)
	closeLater(r.t, c)
	return c, r.accept()
}

// dialled has the process connect to a listener of this one and returns both ends.
func (r *remote) dialled(fl flavour) (*Conn, *remoteConn) {
	r.t.Helper()
	l := fl.newListener(r.t)
	end := call[RemoteEnd](r, "Dial", RemoteDial{Flavour: fl.name, Addr: l.Addr().String()})
	c, err := l.AcceptConn()
	require.NoError(r.t, err)
	closeLater(r.t, c)
	return c, r.conn(end)
}
