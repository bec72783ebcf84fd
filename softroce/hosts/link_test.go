//go:build linux

package hosts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testInterrupted has the packets of one host vanish for less than the timeouts:
// whoever waits for an acknowledgement asks again, and the streams go on.
func testInterrupted(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
	for range 5 {
		sc := play(a, b, Settings{})
		before := w[0].lost(t)
		began := time.Now()
		w[0].netem(t, "loss 100%")
		// Long enough for more than one retry.
		for w[0].lost(t) == before || time.Since(began) < unacknowledged/3 {
			require.Less(t, time.Since(began), prompt, "host 0 loses nothing")
		}
		w[0].mend(t)
		took := time.Since(began)
		t.Logf("interrupted for at most %.2f s, %.2f of the %.2f s of the timeouts", took.Seconds(), took.Seconds()/unacknowledged.Seconds(), unacknowledged.Seconds())
		if took > unacknowledged {
			continue // the machine was too slow to tell
		}
		for _, s := range sc.streams {
			s.in.flows(64<<10, prompt)
		}
		for _, s := range sc.streams {
			s.finish()
		}
		for _, m := range sc.waits {
			m.lasts(time.Now())
		}
		return
	}
	t.Error("no interruption was shorter than the timeouts")
}

// testLinkDown takes the link of one host down for longer than the timeouts. That
// host cannot send, and soft-RoCE fails a QP that wants to, so it knows at once; the
// other one has its timeouts.
func testLinkDown(t *testing.T, w *world) {
	for victim, name := range []string{"Dialer", "Listener"} {
		t.Run(name, func(t *testing.T) {
			p := [2]*process{w[0].start(t), w[1].start(t)}
			sc := play(p[0], p[1], withQuick)
			h := w[victim]
			up := func() { h.run(t, "ip link set $LINK up") }
			t.Cleanup(up)
			h.run(t, "ip link set $LINK down")
			since := w.stopwatch(t)
			sc.cut(victim, since, byQuick, "ECONNRESET", "ETIMEDOUT")
			sc.cut(1-victim, since, byQuick, "ETIMEDOUT")
			sc.close(1 - victim)
			// What is torn down behind a Close and has to wait holds nobody up.
			works(p[1-victim], p[1-victim])
			up()
			// Not before: soft-RoCE also fails the QP that the connection manager of the
			// host sends by (GSI), and that one is never mended.
			sc.close(victim)
			works(p[0], p[1])
		})
	}
}
