package link

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// TestConfig: a Config whose lanes cannot be made is refused at once, by both ends.
func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{Receives: lane.MinDepth - 1},
		{Receives: maxReceives + 1},
		{Streams: lane.MaxStream + 1},
		{FirstRing: 1000},
		{FirstRing: 4096, MaxRing: 1024},
		{Places: -1},
		{Backlog: -1},
		{Lanes: -1},
		{Lanes: MaxLanes + 1},
		{Idle: -1},
	} {
		_, err := NewLinks(c)
		require.ErrorIs(t, err, errConfig, "%+v", c)
		_, err = Listen(c, testAddr())
		require.ErrorIs(t, err, errConfig, "%+v", c)
	}
}

// TestDepths: a record finds a place for each quarter of the receives, and there are more on the software device.
func TestDepths(t *testing.T) {
	for _, d := range []struct {
		receives       int
		synchronous    bool
		depth, records int
	}{
		{0, false, defaultReceives, 128}, {0, true, softReceives, 512},
		{lane.MinDepth, true, lane.MinDepth, 4}, {20, false, 20, 8}, {1000, false, 1000, 256}, {maxReceives, true, maxReceives, lane.MaxPlaces},
	} {
		c, err := Config{Receives: d.receives}.withDefaults()
		require.NoError(t, err)
		depth, records := c.depths(d.synchronous)
		require.Equal(t, d.depth, depth)
		require.Equal(t, d.records, records)
		_, err = lane.New(lane.Config{Role: lane.RoleDialer, Streams: 1, Receives: depth, PeerReceives: depth, Places: records})
		require.NoError(t, err)
	}
}

// TestDefaultLanes: a link has a lane for each processor of the end with fewer, or for every second one
// where both ends use the same.
func TestDefaultLanes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct{ procs, beside, away int }{
		{1, 1, 1}, {2, 1, 2}, {3, 2, 3}, {4, 2, 4}, {8, 4, 8}, {16, 8, 8}, {64, MaxLanes, MaxLanes},
	} {
		runtime.GOMAXPROCS(c.procs)
		cfg, err := Config{}.withDefaults()
		require.NoError(t, err)
		require.Equal(t, c.beside, cfg.lanes(true), "%+v", c)
		require.Equal(t, c.away, cfg.lanes(false), "%+v", c)
		require.Equal(t, 3, (&Config{Lanes: 3}).lanes(true))
	}

	runtime.GOMAXPROCS(4)
	for lanes, want := range []int{2, 1, 2, 2} { // 0 is the default, which is 2 within a host
		l, err := Listen(Config{Lanes: lanes, CM: cm.Options{Device: cm.DefaultDevice()}}, testAddr())
		require.NoError(t, err)
		defer l.Close()
		links, err := NewLinks(Config{CM: cm.Options{Device: cm.DefaultDevice()}})
		require.NoError(t, err)
		defer links.Close()
		s, err := links.Dial(t.Context(), Target{Dst: l.Addr()})
		require.NoError(t, err)
		defer s.Close()
		e := s.now().e
		if !e.p.sameHost {
			want = []int{4, 1, 2, 3}[lanes]
		}
		require.Equal(t, want, e.dialer.agreedLanes())
	}
}

// TestDeviceForLanes: a device that can carry no lane is refused before one is tried.
func TestDeviceForLanes(t *testing.T) {
	good := verbs.DeviceAttr{MaxQPWR: sendDepth, MaxCQE: sendDepth, MaxInlineData: lane.RecordLen}
	require.NoError(t, suffices(verbs.TransportIB, &good))
	require.ErrorIs(t, suffices(verbs.TransportIWARP, &good), verbs.ErrNotSupported, "READs confirm")
	reads := good
	reads.MaxQPRdAtom, reads.MaxQPInitRdAtom = 1, 1
	require.NoError(t, suffices(verbs.TransportIWARP, &reads))
	for _, tt := range []struct {
		shrink func(*verbs.DeviceAttr)
		text   string
	}{
		{func(a *verbs.DeviceAttr) { a.MaxQPWR = 1 }, "queues of 1 requests and 127 completions, a lane needs 127"},
		{func(a *verbs.DeviceAttr) { a.MaxCQE-- }, "queues of 127 requests and 126 completions, a lane needs 127"},
		{func(a *verbs.DeviceAttr) { a.MaxInlineData-- }, "inline data of 63 bytes, a record has 64"},
	} {
		bad := good
		tt.shrink(&bad)
		err := suffices(verbs.TransportIB, &bad)
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		require.EqualError(t, err, "not supported by this RDMA device: "+tt.text)
	}
	good.Caps = verbs.CapSameHost
	require.NoError(t, suffices(verbs.TransportIWARP, &good))
}

// TestEndsOfOtherSizes: the ends of a lane need not have the same Config.
func TestEndsOfOtherSizes(t *testing.T) {
	small := Config{Receives: 16, FirstRing: 256, MaxRing: 4 << 10, Places: 1}
	large := Config{Receives: 2048}
	for _, c := range [][2]Config{{small, large}, {large, small}} {
		b := newBed(t, c[0])
		c[1].CM, c[1].Idle = b.links.cfg.CM, b.links.cfg.Idle
		links, err := NewLinks(c[1])
		require.NoError(t, err)
		t.Cleanup(func() { _ = links.Close() })
		unused := b.links
		b.links = links
		require.NoError(t, unused.Close())
		client, server := b.pair()
		within(t, "a lane whose ends differ", func() {
			for range 500 {
				say(t, client, server)
				say(t, server, client)
			}
		})
	}
}
