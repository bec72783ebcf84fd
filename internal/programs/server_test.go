package programs

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/syncbuffer"
)

// need finds a program of a Debian package. Without it the test is skipped, but in CI,
// which installs them, it fails.
func need(t *testing.T, program, pkg string) (path string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	dirs := []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}
	// Debian keeps the programs of each version of PostgreSQL beside each other.
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(versions)
	for _, dir := range append(versions, dirs...) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}
	text := fmt.Sprintf("there is no %s here: apt-get install %s", program, pkg)
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

// An account is who servers and their tools run as: not root, which some refuse to be.
type account struct {
	credential *syscall.Credential // nil for whoever runs the tests
}

func unprivileged(t *testing.T, name string) account {
	t.Helper()
	if os.Getuid() != 0 {
		return account{}
	}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	require.NoError(t, err)
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	require.NoError(t, err)
	return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// dir makes a directory of the account's, which goes with the test. t.TempDir's are
// within one that nobody else may enter.
func (a account) dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdmanet-server")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if a.credential != nil {
		require.NoError(t, os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid)))
	}
	return dir
}

// command is a command run as the account in dir. It gets stop when the tests die
// before it.
func (a account) command(dir string, stop syscall.Signal, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential, Pdeathsig: stop}
	return cmd
}

// run runs a command to its end and returns what it printed.
func (a account) run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	out, err := a.command(dir, syscall.SIGKILL, program, args...).CombinedOutput()
	require.NoError(t, err, "%s %v\n%s", program, args, out)
	return string(out)
}

// output runs a tool and returns its standard output.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v\n%s%s", program, args, out, &errs)
	return string(out)
}

// freePort is a TCP port that nobody listens at.
func freePort(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// serve starts a server, waits until it accepts clients on a port of this host, and
// stops it with the test, by stop.
func (a account) serve(t *testing.T, dir string, port int, stop syscall.Signal, program string, args ...string) (address string) {
	t.Helper()
	cmd := a.command(dir, stop, program, args...)
	var log syncbuffer.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(stop)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Errorf("%s did not end: %s", program, log.String())
		}
	})
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for end := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) {
			require.Fail(t, "the server cannot be reached", "%v\n%s", err, log.String())
		}
		select {
		case err := <-ended:
			ended <- err
			require.Fail(t, "the server did not start", "%v\n%s", err, log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
