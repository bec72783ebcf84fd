//go:build linux

package hosts

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process is a Worker on one of the hosts, as a test sees it.
type process struct {
	*running
	t *testing.T
}

type running struct {
	h      *host
	pid    int
	client *rpc.Client
	killed bool
	ended  bool
	leaks  chan finished // what Worker.Finish has found, if it was called
}

// finished is what came of Worker.Finish.
type finished struct {
	leaked string
	err    error
}

// joined has the processes of each test that has not ended.
var joined = map[*testing.T][]*running{}

func (h *host) start(t *testing.T) *process {
	t.Helper()
	return h.startOn(t, os.Getenv(deviceVar))
}

// startOn starts a process that uses one device, or any.
func (h *host) startOn(t *testing.T, device string) *process {
	t.Helper()
	return (<-h.launch(device)).join(t)
}

// A launched is a process that no test has taken yet.
type launched struct {
	running *running
	err     error
}

// launch starts a process, which takes a while.
func (h *host) launch(device string) <-chan launched {
	done := make(chan launched, 1)
	go func() {
		s, err := tryCall[Started](h.agent, "Agent.Start", device, prompt)
		if err != nil {
			done <- launched{err: err}
			return
		}
		conn, err := net.DialTimeout("tcp", s.Addr, prompt)
		if err != nil {
			done <- launched{err: err}
			return
		}
		done <- launched{running: &running{h: h, pid: s.PID, client: rpc.NewClient(conn)}}
	}()
	return done
}

// join has the test take the process, which ends with it.
func (l launched) join(t *testing.T) *process {
	t.Helper()
	require.NoError(t, l.err)
	p := &process{t: t, running: l.running}
	joined[t] = append(joined[t], l.running)
	t.Cleanup(func() {
		// All at once: the lanes of a process end when its peer closes its listener.
		for _, r := range joined[t] {
			r.finish()
		}
		delete(joined, t)
		p.end()
	})
	return p
}

// finish has the process close what it has open, unless it is gone or does so already.
func (r *running) finish() {
	if r.ended || r.killed || r.h.dead || r.leaks != nil {
		return
	}
	r.leaks = make(chan finished, 1)
	go func() {
		leaked, err := tryCall[string](r.client, "Worker.Finish", prompt, 2*prompt)
		r.leaks <- finished{leaked, err}
	}()
}

// in is the process in a subtest, which fails where it does.
func (p *process) in(t *testing.T) *process { return &process{t: t, running: p.running} }

// end ends the process, which must not have to be forced, and has nothing open then.
func (p *process) end() {
	if p.ended {
		return
	}
	p.finish()
	p.ended = true
	defer p.client.Close()
	if p.h.dead {
		return
	}
	if !p.killed {
		found := <-p.leaks
		if found.err != nil {
			p.t.Errorf("host %d: Close hangs: %v", p.h.rank, found.err)
			p.describe()
			p.signal(syscall.SIGQUIT) // prints the stacks of its goroutines
		}
		if found.leaked != "" {
			p.t.Errorf("host %d: leaked:\n%s", p.h.rank, found.leaked)
		}
		if !p.h.software {
			p.h.leaves(p.t, p.pid)
		}
	}
	how, err := tryCall[string](p.h.agent, "Agent.End", p.pid, prompt)
	if err != nil {
		p.t.Errorf("host %d: the process does not end: %v", p.h.rank, err)
		p.signal(syscall.SIGKILL)
	}
	if how != "" && !p.killed {
		p.t.Errorf("host %d: the process ended with %s", p.h.rank, how)
	}
}

// describe tells where in the kernel the threads of a process wait that hangs.
func (p *process) describe() {
	p.t.Helper()
	out, err := tryCall[string](p.h.agent, "Agent.Run", fmt.Sprintf("grep -rh --include=stack . /proc/%d/task", p.pid), prompt)
	p.t.Logf("host %d: threads in the kernel: %v\n%s", p.h.rank, err, out)
}

// signal sends the process a signal. Who is killed has nothing to tell any more.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	p.killed = p.killed || sig == syscall.SIGKILL
	call[int](p.t, p.h.agent, "Agent.Signal", Signal{p.pid, sig}, prompt)
}

// listen begins to listen, in place of the listener before.
func (p *process) listen(s Settings) (at string) {
	p.t.Helper()
	return call[string](p.t, p.client, "Worker.Listen", s, prompt)
}

func (p *process) dial(at string, s Settings, limit time.Duration) Made {
	p.t.Helper()
	return call[Made](p.t, p.client, "Worker.Dial", Dial{at, limit, s}, 2*limit+prompt)
}

// cannotDial sees a dial fail in time: with the timeout at the latest.
func (p *process) cannotDial(at string, timeout, slack time.Duration, err string) {
	t := p.t
	t.Helper()
	since, l := p.h.w.stopwatch(t), limit{timeout, slack}
	made := p.dial(at, Settings{}, timeout)
	t.Logf("host %d: Dial failed after %s: %v", p.h.rank, l.against(made.Took), made.Failure)
	if late := since.late(made.Took, l); late > 0 {
		t.Errorf("host %d: Dial missed its limit by %.2f s", p.h.rank, late.Seconds())
	}
	if made.Failure.Op != "dial" || !made.Failure.is(err) {
		t.Errorf("host %d: Dial: not %s: %+v", p.h.rank, err, made.Failure)
	}
}

func (p *process) accept(limit time.Duration) Made {
	p.t.Helper()
	return call[Made](p.t, p.client, "Worker.Accept", limit, 2*limit+prompt)
}

// hasLanes waits until n lanes of the process are up. The second connection between two processes
// brings their second lane up, and goes by the first where that takes long.
func (p *process) hasLanes(n int) {
	p.t.Helper()
	for began := time.Now(); call[int](p.t, p.client, "Worker.Lanes", 0, prompt) < n; time.Sleep(10 * time.Millisecond) {
		require.Less(p.t, time.Since(began), prompt, "no %d lanes come up", n)
	}
}
