//go:build linux

package hosts

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// agentPort is where the agent of a host listens on the control network.
const agentPort = 7411

// An Agent does on its host what the tests ask for. Its methods are called by
// net/rpc, each on a goroutine of its own.
type Agent struct {
	data, control netip.Addr
	stalls        stalls

	mu      sync.Mutex
	workers map[int]*child // by process ID
}

type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // once it has ended
}

func newAgent(data, control netip.Addr) *Agent {
	return &Agent{data: data, control: control, workers: map[int]*child{}}
}

// serveAgent is the main function of host 1. It ends when the tests hang up, and
// its workers end with it.
func serveAgent() error {
	data, err := addresses(hostsVar)
	if err != nil {
		return err
	}
	control, err := addresses(controlVar)
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(control[1], agentPort)))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	conn, err := l.Accept()
	if err != nil {
		return fmt.Errorf("host 0 does not come: %w", err)
	}
	return newAgent(data[1], control[1]).serve(conn)
}

func (a *Agent) serve(conn net.Conn) error {
	gone := make(chan struct{})
	defer close(gone)
	go a.stalls.watch(gone)
	return serve(conn, a)
}

// Stalled is for how long the host has stood still since it has an agent.
func (a *Agent) Stalled(_ int, d *time.Duration) error {
	*d = time.Duration(a.stalls.total.Load())
	return nil
}

// A Started is a process that waits for a call at Addr.
type Started struct {
	PID  int
	Addr string
}

// Start starts a Worker that uses a device, or any.
func (a *Agent) Start(device string, s *Started) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerVar+"="+a.control.String(), workerAddrVar+"="+a.data.String(), deviceVar+"="+device)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c := &child{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(c.ended)
		c.err = cmd.Wait()
	}()
	if err != nil {
		return fmt.Errorf("the worker did not start; its own message is in the output of its host: %w", err)
	}
	*s = Started{PID: cmd.Process.Pid, Addr: strings.TrimSpace(line)}
	a.mu.Lock()
	a.workers[s.PID] = c
	a.mu.Unlock()
	return nil
}

// A Signal is one for a worker.
type Signal struct {
	PID int
	Sig syscall.Signal
}

// Signal sends a signal.
func (a *Agent) Signal(s Signal, _ *int) error {
	c, err := a.worker(s.PID)
	if err != nil {
		return err
	}
	return c.cmd.Process.Signal(s.Sig)
}

// End lets a worker go and waits until it has; the reply says how it ended if that
// was not in order.
func (a *Agent) End(pid int, how *string) error {
	c, err := a.worker(pid)
	if err != nil {
		return err
	}
	_ = c.stdin.Close()
	<-c.ended
	a.mu.Lock()
	delete(a.workers, pid)
	a.mu.Unlock()
	if c.err != nil {
		*how = c.err.Error()
	}
	return nil
}

func (a *Agent) worker(pid int) (*child, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.workers[pid]; c != nil {
		return c, nil
	}
	return nil, errors.New("no worker " + strconv.Itoa(pid))
}

// Run runs a command and returns what it prints. "$LINK" in it is the network
// interface of the RDMA device.
func (a *Agent) Run(line string, out *string) error {
	words := strings.Fields(strings.ReplaceAll(line, "$LINK", os.Getenv(linkVar)))
	b, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, b)
	}
	*out = string(b)
	return nil
}

// A Flap is a fault that is repaired after a while, both by tc(8).
type Flap struct {
	Break, Repair string
	For           time.Duration
}

// Flap plays one and returns for how long the fault was there at most. One tc does both:
// to start a program takes long on an emulated machine.
func (a *Agent) Flap(f Flap, took *time.Duration) error {
	cmd := exec.Command("tc", "-batch", "-")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	tell := func(line string) {
		_, _ = io.WriteString(stdin, strings.ReplaceAll(strings.TrimPrefix(line, "tc "), "$LINK", os.Getenv(linkVar))+"\n")
	}
	answers := bufio.NewReader(stdout)
	// What it is asked it answers when it has done all before.
	done := func() error {
		tell("qdisc show dev $LINK")
		_, err := answers.ReadString('\n')
		return err
	}
	err = done()
	began := time.Now()
	tell(f.Break)
	time.Sleep(f.For)
	tell(f.Repair)
	err = errors.Join(err, done())
	*took = time.Since(began)
	_ = stdin.Close()
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%+v: %w", f, err)
	}
	return nil
}

// Resources lists the RDMA objects of a process, or of all processes if pid is 0.
// The kernel has some of its own.
func (a *Agent) Resources(pid int, left *string) error {
	var list strings.Builder
	for _, kind := range []string{"qp", "cq", "mr", "pd", "srq", "cm_id"} {
		out, err := exec.Command("rdma", "-j", "resource", "show", kind).Output()
		if err != nil {
			return fmt.Errorf("rdma resource show %s: %w", kind, err)
		}
		var objects []map[string]any
		if err := json.Unmarshal(out, &objects); err != nil {
			return fmt.Errorf("rdma resource show %s: %w: %q", kind, err, out)
		}
		for _, o := range objects {
			if owner, ok := o["pid"].(float64); ok && (pid == 0 || pid == int(owner)) && !isPlug(kind, o) {
				fmt.Fprintf(&list, "%s %v\n", kind, o)
			}
		}
	}
	*left = list.String()
	return nil
}

// isPlug reports whether an object is the CQ that the driver keeps for soft-iWARP's own sake
// while it has a device open: 1 MiB of entries, and of no QP (ibv/softiwarp.go).
func isPlug(kind string, o map[string]any) bool {
	name, _ := o["ifname"].(string)
	return kind == "cq" && strings.HasPrefix(name, "siw") && o["cqe"] == 32768.0 && o["users"] == 0.0
}

// Crash ends the host at once, as a power failure does.
func (a *Agent) Crash(_ int, _ *int) error {
	return os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0)
}
