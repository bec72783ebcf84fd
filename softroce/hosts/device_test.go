//go:build linux

package hosts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testDeviceDeleted takes the RDMA device of one host away under its connections.
func testDeviceDeleted(t *testing.T, w *world) {
	for victim, name := range []string{"Dialer", "Listener"} {
		t.Run(name, func(t *testing.T) {
			h := w[victim]
			add := func() { h.run(t, "rdma link add rxe0 type rxe netdev $LINK") }
			t.Cleanup(func() {
				if !strings.Contains(h.run(t, "rdma link show"), "rxe0") {
					add()
				}
			})
			p := [2]*process{w[0].start(t), w[1].start(t)}
			sc := play(p[0], p[1], withQuick)
			since := w.stopwatch(t)
			// It waits until no process has the device open; librdmacm closes it when
			// the process ends.
			deleted := make(chan error, 1)
			go func() {
				_, err := tryCall[string](h.agent, "Agent.Run", "rdma link del rxe0", 2*prompt)
				deleted <- err
			}()
			sc.cut(victim, since, byQuick, "no device")
			sc.cut(1-victim, since, byQuick, "ECONNRESET", "ETIMEDOUT")
			sc.close(victim)
			sc.close(1 - victim)
			if victim == 1 {
				made := p[victim].accept(prompt)
				require.True(t, made.Failure.is("no device"), "Accept without a device: %+v", made.Failure)
			}
			p[victim].end()
			require.NoError(t, <-deleted)

			add()
			p[victim] = h.start(t)
			works(p[0], p[1])
		})
	}
}
