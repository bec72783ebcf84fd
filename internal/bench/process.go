package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// roleVar in the environment makes the test binary another process.
const (
	roleVar  = "RDMANET_BENCH_ROLE"
	rolePeer = "peer"
)

// Main is TestMain of a binary with benchmarks, and returns its status. The binary is also the
// other end, where this process has started it again.
func Main(m *testing.M) (status int) {
	if os.Getenv(roleVar) == rolePeer {
		return servePeer()
	}
	defer stopPeer()
	return m.Run()
}

// A process is this test binary started again. It is told what to do on its standard input, and
// answers on its standard output.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	send  *json.Encoder
	take  *json.Decoder
}

// startAgain starts this test binary again as another process, which ends when its
// standard input does: when this process ends, however it ends.
func startAgain(role string, env ...string) (*process, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)}, nil
}

func (p *process) stop() error {
	_ = p.stdin.Close()
	return p.cmd.Wait()
}

// peer is the process that is the other end.
var peer *process

func startPeer() (s Site, err error) {
	var env []string
	if device := os.Getenv(deviceSetting); device != "" {
		env = append(env, "RDMANET_DEVICE="+device)
	}
	if peer, err = startAgain(rolePeer, env...); err != nil {
		return s, err
	}
	if err := peer.take.Decode(&s); err != nil {
		return s, fmt.Errorf("the peer process did not start: %w", err)
	}
	return s, nil
}

func stopPeer() {
	if peer != nil {
		if err := peer.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "peer process:", err)
		}
	}
	removeHere()
}

// servePeer is the main function of the peer.
func servePeer() (status int) {
	err := func() error {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		s, err := openSite(dir)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(s)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, os.Stdin)
		}
		return err
	}()
	if err != nil && !errors.Is(err, os.ErrClosed) {
		fmt.Fprintln(os.Stderr, "peer process:", err)
		return 1
	}
	return 0
}
