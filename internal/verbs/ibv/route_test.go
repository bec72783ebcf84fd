//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestNetdevs: the entries of a GID table name the network interface that they belong to but on InfiniBand,
// where the hardware address of an IPoIB interface has the GID of its port.
func TestNetdevs(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text+"\n"), 0o644))
	}
	put("roce0/ports/1/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001")
	put("roce0/ports/1/gid_attrs/ndevs/0", "eth0")
	put("roce0/ports/1/gid_attrs/ndevs/1", "eth0.7")
	put("ib0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001")
	put("ib0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000")
	put("ib1/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0002")
	put("none0/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000")

	ipoib := func(name string, last byte) net.Interface {
		return net.Interface{Name: name, HardwareAddr: net.HardwareAddr{0x80, 0, 0, 0x48, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0, last}}
	}
	interfaces := func() ([]net.Interface, error) {
		empty := ipoib("down0", 0)
		clear(empty.HardwareAddr)
		return []net.Interface{
			{Name: "lo"}, {Name: "eth0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
			ipoib("ibs0", 1), ipoib("ibs0.8001", 1), ipoib("ibs1", 2), ipoib("ibs2", 3), empty,
		}, nil
	}
	for device, want := range map[string]map[string]bool{
		"roce0":   {"eth0": true, "eth0.7": true},
		"ib0":     {"ibs0": true, "ibs0.8001": true},
		"ib1":     {"ibs1": true},
		"none0":   {},
		"missing": {},
	} {
		got, err := netdevsIn(dir, device, interfaces)
		require.NoError(t, err, device)
		assert.Equal(t, want, got, device)
	}
	_, err := netdevsIn(dir, "ib0", func() ([]net.Interface, error) { return nil, syscall.EMFILE })
	require.ErrorIs(t, err, syscall.EMFILE)
}

// TestRouteTimerOfAFormerCall: a ResolveRoute whose time was up just as it ended leaves the next one alone.
func TestRouteTimerOfAFormerCall(t *testing.T) {
	var told []driver.CMEventType
	id := &cmID{
		ch: newCMChannel(needVerbs(t), &librdmacm{resolveRoute: succeedingCall()}), handle: 1, state: cmAddrResolved,
		ctx: &devContext{dev: &device{transport: verbs.TransportIB}},
	}
	id.events.Init(func(ev driver.CMEvent) { told = append(told, ev.Type) })
	require.NoError(t, id.ResolveRoute(time.Minute))
	former := id.abandoned
	id.onEvent(&cmEvent{typ: driver.CMRouteError})
	require.NoError(t, id.ResolveRoute(time.Minute))
	defer id.stopTimer()
	id.noRoute(former, routeTimedOut(time.Minute), true)
	require.Equal(t, cmResolvingRoute, id.state)
	id.onEvent(&cmEvent{typ: driver.CMRouteResolved})
	require.Equal(t, []driver.CMEventType{driver.CMRouteError, driver.CMRouteResolved}, told)
}
