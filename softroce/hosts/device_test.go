//go:build linux

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testDeviceDeleted takes the RDMA device of one host away under its connections, and
// makes it anew.
func testDeviceDeleted(t *testing.T, w *world) {
	for side, name := range []string{"Dialer", "Listener"} {
		t.Run(name, func(t *testing.T) {
			h := w[side]
			h.restoresDevice(t)
			p := [2]*process{w[0].start(t), w[1].start(t)}
			sc := play(p[0], p[1], withQuick)
			since := w.stopwatch(t)
			deleted := h.deleteDevice()
			sc.cut(side, since, byQuick, "no device")
			sc.cut(1-side, since, byQuick, "ECONNRESET", "ETIMEDOUT")
			sc.close(side)
			sc.close(1 - side)
			if side == 1 {
				made := p[side].accept(prompt)
				require.True(t, made.Failure.is("no device"), "Accept without a device: %+v", made.Failure)
			}
			p[side].end()
			require.NoError(t, <-deleted)

			h.addDevice(t, "rxe0")
			p[side] = h.start(t)
			works(p[0], p[1])
		})
	}
	t.Run("AddedAgain", func(t *testing.T) { testDeviceAdded(t, w) })
}

const otherMAC = "52:54:00:00:0a:02"

// testDeviceAdded has another device come in place of the one that is taken away, under a
// process that lives on. What listens on a wildcard address serves the new one, too.
func testDeviceAdded(t *testing.T, w *world) {
	h := w[1]
	h.restoresDevice(t)
	a, b := w[0].start(t), h.startOn(t, "")
	everywhere := withQuick
	everywhere.Wildcard = true
	sc := play(a, b, everywhere)
	since := w.stopwatch(t)
	deleted := h.deleteDevice()
	sc.cut(1, since, byQuick, "no device")
	sc.cut(0, since, byQuick, "ECONNRESET", "ETIMEDOUT")
	sc.close(0)
	sc.close(1)

	// soft-RoCE keeps the interface until the process lets go of the device that was
	// deleted, and librdmacm does when it sees another. So that comes on another one.
	data, err := addresses(hostsVar)
	require.NoError(t, err)
	for _, line := range []string{
		"ip addr del " + data[1].String() + "/24 dev $LINK",
		"ip link add link $LINK name other address " + otherMAC + " type macvlan mode bridge",
		"ip link set other mtu 4200 up",
		"ip addr add " + data[1].String() + "/24 dev other",
		"rdma link add rxe1 type rxe netdev other",
	} {
		h.run(t, line)
	}
	// The old interface would answer for it, too.
	w[0].run(t, "ip neigh replace "+data[1].String()+" lladdr "+otherMAC+" dev $LINK nud permanent")
	pass(connectTo(a, b, sc.at, Settings{}))
	call[int](t, b.client, "Worker.NewDevice", 0, prompt)
	select {
	case err := <-deleted:
		require.NoError(t, err)
	case <-time.After(prompt):
		t.Error("the process keeps the device that was deleted")
	}
	works(b, a)
	works(a, b)
}

// deleteDevice deletes the device of the host. That waits until no process has it open;
// librdmacm closes it when it sees a new one, or the process ends.
func (h *host) deleteDevice() <-chan error {
	deleted := make(chan error, 1)
	go func() {
		_, err := tryCall[string](h.agent, "Agent.Run", "rdma link del rxe0", 2*prompt)
		deleted <- err
	}()
	return deleted
}

func (h *host) addDevice(t *testing.T, name string) {
	t.Helper()
	h.run(t, "rdma link add "+name+" type rxe netdev $LINK")
}

// restoresDevice has the host have its device again when the test ends, however it ends.
func (h *host) restoresDevice(t *testing.T) {
	t.Cleanup(func() {
		if strings.Contains(h.run(t, "rdma link show"), "rxe0/") {
			return
		}
		if strings.Contains(h.run(t, "ip link show"), "other@") {
			data, err := addresses(hostsVar)
			require.NoError(t, err)
			h.run(t, "ip link del other") // and its device
			h.run(t, "ip addr add "+data[h.rank].String()+"/24 dev $LINK")
			h.w[1-h.rank].run(t, "ip neigh replace "+data[h.rank].String()+" lladdr "+otherMAC+" dev $LINK nud stale")
			h.w[1-h.rank].run(t, "ip neigh flush dev $LINK")
		}
		h.addDevice(t, "rxe0")
	})
}
