//go:build linux

package hosts

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testNeighbour dials while the kernel does not know the other host's hardware
// address. It asks for it, but may overhear the answer; see query in the driver.
func testNeighbour(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
	t.Cleanup(func() { w[0].run(t, "ip neigh flush dev $LINK") })
	at := b.listen(Settings{})
	l := limit{slack: 2 * slack}
	for range 10 {
		w[0].run(t, "ip neigh flush dev $LINK")
		since := w.stopwatch(t)
		made := a.dial(at, Settings{}, prompt)
		require.Zero(t, made.Failure, "host 0: Dial")
		if late := since.late(made.Took, l); late > 0 {
			t.Errorf("host 0: Dial took %s: missed by %.2f s", l.against(made.Took), late.Seconds())
		}
		near := &end{a, made.Conn}
		made = b.accept(prompt)
		require.Zero(t, made.Failure, "host 1: Accept")
		near.close()
		(&end{b, made.Conn}).close()
	}
}

// testNeighbourNews has the kernel hear of another hardware address of the other host, of
// which it tells every id of a connection to there (UNREACHABLE), as it does when it looks
// in vain for one that it has forgotten. What stands lives on. Nothing is sent meanwhile.
func testNeighbourNews(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
	at := b.listen(withoutKeepAlive)
	host, _, err := net.SplitHostPort(at)
	require.NoError(t, err)
	near, far := connectTo(a, b, at, withoutKeepAlive)
	nearIdle, farIdle := connectTo(a, b, at, withoutKeepAlive)
	waits := []*moving{nearIdle.begin(Flow{}).as("waits"), farIdle.begin(Flow{}).as("waits")}
	for range 3 {
		w[0].run(t, "ip neigh replace "+host+" lladdr 02:00:00:00:00:99 dev $LINK nud reachable")
		w[0].run(t, "ip neigh flush dev $LINK") // which finds the right one again
	}
	for _, st := range []stream{pour(near, far, 1, 0), pour(far, near, 2, 0)} {
		st.in.flows(64<<10, prompt)
		st.finish()
	}
	for _, m := range waits {
		m.lasts(time.Now())
	}
}
