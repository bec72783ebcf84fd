//go:build linux

package hosts

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testProcessKilled kills the process at one end. Its kernel tells the other end.
func testProcessKilled(t *testing.T, w *world) {
	for side, name := range []string{"Dialer", "Listener"} {
		t.Run(name, func(t *testing.T) {
			p := [2]*process{w[0].start(t), w[1].start(t)}
			sc := play(p[0], p[1], withoutKeepAlive)
			since := w.stopwatch(t)
			p[side].signal(syscall.SIGKILL)
			sc.cut(1-side, since, atOnce, "ECONNRESET")
			sc.close(1 - side)
			if side == 1 {
				p[0].cannotDial(sc.at, 0, atOnce.slack, "ECONNREFUSED")
			}
			works(w[side].start(t), p[1-side])
		})
	}
}

// testListenerKilled kills a listener with connections that nobody has accepted, and
// clients that wait in their dial for a place among them.
func testListenerKilled(t *testing.T, w *world) {
	const backlog, dialers = 3, 9
	a, b := w[0].start(t), w[1].start(t)
	s := withoutKeepAlive
	s.Backlog = backlog
	at := b.listen(s)
	type outcome struct {
		made Made
		err  error
		at   time.Time
	}
	outcomes := make(chan outcome, dialers)
	for range dialers {
		go func() {
			made, err := tryCall[Made](a.client, "Worker.Dial", Dial{Addr: at, Timeout: 2 * prompt, Settings: s}, 3*prompt)
			outcomes <- outcome{made, err, time.Now()}
		}()
	}
	var pending []*end
	for range backlog {
		o := <-outcomes
		require.NoError(t, o.err)
		require.Zero(t, o.made.Failure, "host 0: Dial")
		pending = append(pending, &end{a, o.made.Conn})
	}
	// The others wait for a place, at the dialer.
	for began := time.Now(); call[int](t, a.client, "Worker.Waiting", 0, prompt) < dialers-backlog; {
		require.Less(t, time.Since(began), prompt, "the dials do not wait for a place")
	}
	var calls []*moving
	for _, e := range pending {
		calls = append(calls, e.begin(Flow{}).as("not accepted"))
	}
	since := w.stopwatch(t)
	b.signal(syscall.SIGKILL)
	for _, m := range calls {
		m.cut(since, atOnce, "ECONNRESET")
	}
	for range dialers - backlog {
		o := <-outcomes
		require.NoError(t, o.err)
		if o.made.Failure.Text == "" {
			// One before it was too slow to confirm, and has lost its place.
			e := &end{a, o.made.Conn}
			e.begin(Flow{}).as("not accepted").cut(since, atOnce, "ECONNRESET")
			pending = append(pending, e)
			continue
		}
		took := o.at.Sub(since.began)
		t.Logf("host 0: Dial failed after %s: %v", atOnce.against(took), o.made.Failure)
		late := since.late(took, atOnce)
		if late > 0 {
			t.Errorf("host 0: Dial missed its limit by %.2f s", late.Seconds())
		}
		detected.add(t, "Dial", atOnce, min(took, atOnce.total()+late))
		if f := o.made.Failure; f.Op != "dial" || !f.is("ECONNREFUSED") && !f.is("ECONNRESET") {
			t.Errorf("host 0: Dial: %+v", f)
		}
	}
	for _, e := range pending {
		e.close()
	}
	works(w[1].start(t), a)
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
	// A dial takes a place that was granted before, as TCP's takes one of the kernel's backlog, or
	// keeps its timeout.
	since, asked := w.stopwatch(t), limit{500 * time.Millisecond, slack}
	made := a.dial(scenes[1].at, Settings{}, asked.sum)
	if late := since.late(made.Took, asked); late > 0 {
		t.Errorf("host 0: Dial missed its limit by %.2f s", late.Seconds())
	}
	if made.Failure.Text != "" && !made.Failure.is("deadline") {
		t.Errorf("host 0: Dial: %+v", made.Failure)
	}
	require.NotZero(t, scenes[0].ends[0][0].info().KeepAlivesSent, "nobody asked the stopped process's device")
	b.signal(syscall.SIGCONT)
	for _, sc := range scenes {
		for _, s := range sc.streams {
			s.in.flows(64<<10, prompt)
		}
		for _, s := range sc.streams {
			s.finish()
		}
	}
	if made.Failure.Text == "" {
		(&end{a, made.Conn}).close()
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
