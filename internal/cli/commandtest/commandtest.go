// Package commandtest runs a program in its own tests as its user does, as a
// process: the test binary is the program if it is started so, and no compiler is
// needed.
package commandtest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/child"
	"github.com/rdmanet/go-rdmanet/internal/syncbuffer"
)

// asProgram makes the test binary be the program.
const asProgram = "RDMANET_TEST_PROGRAM"

// limit is how long a program may run.
const limit = time.Minute

// Main is for TestMain: it runs the tests and returns their exit status, or is the
// program.
func Main(tests func() int, program func()) int {
	if os.Getenv(asProgram) != "" {
		program()
		return 0
	}
	return tests()
}

// Program prepares a run of the program that is killed if the test hangs.
func Program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	// A process under the race detector otherwise sleeps a second when it ends.
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return cmd
}

// Finish runs cmd and returns its output and exit status.
func Finish(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// RequireNoticesOutput runs the program twice: with a standard output that is full, and
// with one that nobody reads. Both times it must fail and say so.
func RequireNoticesOutput(t *testing.T, args ...string) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("there is no file that is always full: %v", err)
	}
	defer full.Close()
	unread, out, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	require.NoError(t, unread.Close())
	for want, stdout := range map[string]*os.File{"no space left on device": full, "broken pipe": out} {
		cmd := Program(t, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = stdout, &errs
		cmd.Stdin = strings.NewReader("hello\n")
		_ = cmd.Run() // the status tells
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%s", errs.String())
		require.Contains(t, errs.String(), want)
	}
}

// A Server is a program that has said where it listens.
type Server struct {
	*exec.Cmd
	Address string

	read   chan struct{} // closed when there is no more output
	out    bytes.Buffer
	errors syncbuffer.Buffer
}

// Start starts the program as a server, which is killed when the test ends.
func Start(t *testing.T, args ...string) *Server {
	t.Helper()
	s := &Server{Cmd: Program(t, args...), read: make(chan struct{})}
	s.Stderr = &s.errors
	stdout, err := s.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.Cmd.Start())
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	go func() {
		defer close(s.read)
		_, _ = io.Copy(&s.out, lines)
	}()
	t.Cleanup(func() {
		_ = s.Process.Kill()
		_, _, _ = s.End()
	})
	var ok bool
	s.Address, ok = strings.CutPrefix(strings.TrimSpace(line), child.Announcement)
	if err != nil || !ok {
		_, stderr, _ := s.End()
		require.Fail(t, "the server did not start", "%s%s", line, stderr)
	}
	return s
}

// AwaitError waits until the server has printed text to its standard error.
func (s *Server) AwaitError(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(limit); !strings.Contains(s.errors.String(), text); {
		require.True(t, time.Now().Before(end), "the server said %q, and never %q", s.errors.String(), text)
		time.Sleep(time.Millisecond)
	}
}

// End waits for the end of the server and returns what it has printed since Start,
// and its exit status.
func (s *Server) End() (stdout, stderr string, status int) {
	<-s.read
	_ = s.Wait() // the status tells
	return s.out.String(), s.errors.String(), s.ProcessState.ExitCode()
}
