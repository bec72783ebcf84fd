//go:build linux

package hosts

import (
	"testing"
	"time"
)

// testBlackHole has all packets of one or both hosts vanish.
func testBlackHole(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
	for _, c := range []struct {
		name string
		mute []*host
	}{
		{"There", w[:1]},
		{"Back", w[1:]},
		{"Both", w[:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := a.in(t), b.in(t)
			asked, asItIs := play(a, b, withQuick), play(a, b, Settings{})
			near, far := connect(a, b, withoutKeepAlive)

			for _, h := range c.mute {
				h.netem(t, "loss 100%")
			}
			since := w.stopwatch(t)
			// What is not acknowledged tells without a keepalive, too.
			unasked := []*moving{near.begin(Flow{Send: true}), far.begin(Flow{Send: true})}
			for rank := range w {
				unasked[rank].cut(since, byAck, "ETIMEDOUT")
				asked.cut(rank, since, byQuick, "ETIMEDOUT")
				asItIs.cut(rank, since, bySilence, "ETIMEDOUT")
			}
			for rank := range w {
				asked.close(rank)
				asItIs.close(rank)
			}
			a.cannotDial(b.listen(Settings{}), 500*time.Millisecond, slack, "deadline")

			for _, h := range c.mute {
				h.mend(t)
			}
			works(a, b)
		})
	}
}
