//go:build linux

package hosts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testInterrupted has the packets of one host vanish for less than the timeouts, time and
// again, as where a link flaps: whoever waits for an acknowledgement asks again, and the
// streams go on.
func testInterrupted(t *testing.T, w *world) {
	const flaps, tries = 4, 12
	a, b := w[0].start(t), w[1].start(t)
	sc := play(a, b, Settings{})
	for short, all := 0, 0; short < flaps; all++ {
		require.Less(t, all, tries, "there was hardly an interruption that was shorter than the timeouts")
		h := w[all%2]
		before := h.lost(t)
		// Long enough for more than one retry.
		took := call[time.Duration](t, h.agent, "Agent.Flap", Flap{netem("change", "loss 100%"), netem("change", noFault), unacknowledged / 3}, prompt)
		t.Logf("interrupted for at most %.2f s, %.2f of the %.2f s of the timeouts", took.Seconds(), took.Seconds()/unacknowledged.Seconds(), unacknowledged.Seconds())
		switch {
		case took > unacknowledged:
			sc = play(a, b, Settings{}) // the machine was too slow to tell
			continue
		case h.lost(t) == before:
			continue // nobody sent meanwhile
		}
		short++
		for _, s := range sc.streams {
			s.in.flows(64<<10, prompt)
		}
	}
	for _, s := range sc.streams {
		s.finish()
	}
	for _, m := range sc.waits {
		m.lasts(time.Now())
	}
}

// testLinkDown takes the link of one host down for longer than the timeouts. That
// host cannot send, and soft-RoCE fails a QP that wants to, so it knows at once; the
// other one has its timeouts.
func testLinkDown(t *testing.T, w *world) {
	for side, name := range []string{"Dialer", "Listener"} {
		t.Run(name, func(t *testing.T) {
			p := [2]*process{w[0].start(t), w[1].start(t)}
			sc := play(p[0], p[1], withQuick)
			h := w[side]
			for _, x := range p {
				x.hasLanes(2) // the connection manager of the host says nothing while its link is down
			}
			up := func() { h.run(t, "ip link set $LINK up") }
			t.Cleanup(up)
			h.run(t, "ip link set $LINK down")
			since := w.stopwatch(t)
			sc.cut(side, since, byQuick, "ECONNRESET", "ETIMEDOUT")
			sc.cut(1-side, since, byQuick, "ETIMEDOUT")
			sc.close(1 - side)
			// What is torn down behind a Close and has to wait holds nobody up.
			works(p[1-side], p[1-side])
			up()
			// Not before: soft-RoCE also fails the QP that the connection manager of the
			// host sends by (GSI), and that one is never repaired.
			sc.close(side)
			works(p[0], p[1])
		})
	}
}
