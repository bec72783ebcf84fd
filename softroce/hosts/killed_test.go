//go:build linux

package hosts

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/rdmanet"
)

// testProcessKilled kills the process at one end. Its kernel tells the other end.
func testProcessKilled(t *testing.T, w *world) {
	for victim, name := range []string{"Dialer", "Listener"} {
		t.Run(name, func(t *testing.T) {
			p := [2]*process{w[0].start(t), w[1].start(t)}
			sc := play(p[0], p[1], withoutKeepAlive)
			since := w.stopwatch(t)
			p[victim].signal(syscall.SIGKILL)
			sc.cut(1-victim, since, atOnce, "ECONNRESET")
			sc.close(1 - victim)
			if victim == 1 {
				p[0].cannotDial(sc.at, 0, atOnce.slack, "ECONNREFUSED")
			}
			works(w[victim].start(t), p[1-victim])
		})
	}
}

// testProcessStopped stops the process at one end for longer than all timeouts add
// up to. Its device goes on answering, so nothing has failed, keepalive or not.
func testProcessStopped(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
	scenes := []*scene{play(a, b, withQuick), play(a, b, withoutKeepAlive)}
	b.signal(syscall.SIGSTOP)
	until := time.Now().Add(2 * max(byAck.total(), byQuick.total()))
	for _, sc := range scenes {
		for _, m := range sc.on(0) {
			m.lasts(until)
		}
	}
	a.cannotDial(scenes[1].at, 500*time.Millisecond, slack, "deadline")
	stats := call[rdmanet.ConnStats](t, a.client, "Worker.Stats", scenes[0].ends[0][0].id, prompt)
	require.NotZero(t, stats.KeepAlivesSent, "nobody asked the stopped process's device")
	b.signal(syscall.SIGCONT)
	for _, sc := range scenes {
		for _, s := range sc.streams {
			s.in.flows(64<<10, prompt)
		}
		for _, s := range sc.streams {
			s.finish()
		}
	}
	works(a, b)
}

// testHostKilled kills host 1 in the midst of everything.
func testHostKilled(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
	asked, asItIs := play(a, b, withQuick), play(a, b, Settings{})
	since := w.stopwatch(t)
	// There is nobody left to answer.
	_, _ = tryCall[int](w[1].agent, "Agent.Crash", 0, time.Second)
	w[1].dead = true
	asked.cut(0, since, byQuick, "ETIMEDOUT")
	asItIs.cut(0, since, bySilence, "ETIMEDOUT")
	asked.close(0)
	asItIs.close(0)
	a.cannotDial(asItIs.at, 500*time.Millisecond, slack, "deadline")
}
