// Package child runs the server of a program as a second process of this host:
// the program starts itself again with other flags.
//
// The server says where it listens in the first line of its standard output, and
// it goes when its standard input ends, which is when the parent has gone,
// however the parent went.
package child

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// marker is set in the environment of a child; whoever starts a server by hand
// does not have it, and closing that server's standard input means nothing.
const marker = "RDMANET_CHILD"

// Announcement is what the first line of a server begins with; its address follows.
const Announcement = "listening on "

// Process is a running server.
type Process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
	drained chan struct{}
}

// Start starts this program again with args and waits until it says where it
// listens. The process is killed when ctx is done. The caller must call Stop.
func Start(ctx context.Context, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start the server: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), marker+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	p := &Process{cmd: cmd, stdin: stdin, drained: make(chan struct{})}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), Announcement)
	if err != nil || !ok {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("the server process did not start; its own message is above")
	}
	p.address = address
	go func() {
		defer close(p.drained)
		_, _ = io.Copy(io.Discard, lines)
	}()
	return p, nil
}

// Address is where the server listens.
func (p *Process) Address() string { return p.address }

// PID is the server's process number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends the server and reports a failure of its own.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	<-p.drained
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("server process: %w", err)
	}
	return nil
}

// Announce tells whoever started this server where it listens.
func Announce(w io.Writer, address string) error {
	_, err := fmt.Fprintln(w, Announcement+address)
	return err
}

// WithParent returns a context that is done when the process that called Start
// has gone. In a program started by hand it is ctx itself.
func WithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if os.Getenv(marker) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	return ctx, cancel
}
