//go:build linux

package hosts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// testNeighbour dials while the kernel does not know the other host's hardware
// address. It asks for it, but may overhear the answer; see query in the driver.
func testNeighbour(t *testing.T, w *world) {
	a, b := w[0].start(t), w[1].start(t)
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
