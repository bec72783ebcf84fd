package link

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
)

// lanesOf returns what Lanes says of the lanes to l, and of those that l has.
func lanesOf(l *Listener) (dialled, accepted []LaneStats) { return lanesAt(l.Addr()) }

// lanesAt is lanesOf of a listener at an address.
func lanesAt(at netip.AddrPort) (dialled, accepted []LaneStats) {
	for _, s := range Lanes() {
		switch at {
		case s.Remote:
			dialled = append(dialled, s)
		case s.Local:
			accepted = append(accepted, s)
		}
	}
	return dialled, accepted
}

// TestLanes: the process knows its lanes, of both ends, with numbers of their own, until nothing is
// left of them; and what they have counted stays.
func TestLanes(t *testing.T) {
	b := newBed(t, Config{Lanes: 2, Idle: time.Hour})
	client, server := b.pair()
	device := func() LaneSums { return *SumsOfLanes()[client.Device()] }
	before := device()
	say(t, client, server)
	dialled, accepted := lanesOf(b.l)
	require.Len(t, dialled, 1)
	require.Len(t, accepted, 1)
	require.GreaterOrEqual(t, before.Links, 2, "each end is one")
	near, far := dialled[0], accepted[0]
	require.Equal(t, LaneUp, near.State)
	require.Equal(t, near.Epoch, far.Epoch)
	require.NotEqual(t, near.ID, far.ID)
	require.NotEqual(t, near.Link, far.Link)
	require.WithinDuration(t, time.Now(), near.Since, patience)
	id, link := client.Lane()
	require.Equal(t, []uint64{near.ID, near.Link}, []uint64{id, link})
	id, link = server.Lane()
	require.Equal(t, []uint64{far.ID, far.Link}, []uint64{id, link})
	require.Positive(t, near.SendDepth)
	require.LessOrEqual(t, near.SendQueue, near.SendDepth)

	beside, other := b.pair() // by the second lane, unless that comes up late
	require.Eventually(t, func() bool {
		dialled, accepted = lanesOf(b.l)
		return len(dialled) == 2 && len(accepted) == 2
	}, patience, time.Millisecond)
	require.Less(t, dialled[0].ID, dialled[1].ID)
	require.Equal(t, dialled[0].Link, dialled[1].Link)
	require.Equal(t, accepted[0].Link, accepted[1].Link)
	require.GreaterOrEqual(t, device().Dialled.Total, before.Dialled.Total+1)
	require.LessOrEqual(t, device().Links, before.Links, "a second lane makes no other link")

	require.NoError(t, b.l.Close())
	require.Eventually(t, func() bool {
		going := 0
		dialled, accepted = lanesOf(b.l)
		for _, s := range append(dialled, accepted...) {
			if s.State == LaneGoingAway && (s.ID == near.ID || s.ID == far.ID) {
				going++
			}
		}
		return going == 2
	}, patience, time.Millisecond)
	require.Zero(t, client.LaneStats().Places, "nothing is opened on it any more")
	require.Zero(t, server.LaneStats().Places)
	for _, s := range []*Stream{client, server, beside, other} {
		require.NoError(t, s.Close())
	}
	require.Eventually(t, func() bool {
		dialled, accepted = lanesOf(b.l)
		return len(dialled)+len(accepted) == 0
	}, patience, time.Millisecond)
	after := device()
	require.Greater(t, after.MessagesSent, before.MessagesSent)
	require.Greater(t, after.MessagesReceived, before.MessagesReceived)
}

// TestPlacesOfAPortInUse: the places of a lane with a port of its own are of use to nobody while a stream has the port.
func TestPlacesOfAPortInUse(t *testing.T) {
	b := newBed(t, Config{Idle: time.Minute})
	to := Target{Src: b.freeAddr(), Dst: b.l.Addr()}
	client, err := b.links.Dial(b.ctx(), to)
	require.NoError(t, err)
	server := b.accept()
	e := client.now().e
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.state.Places() > 0
	}, patience, time.Millisecond)
	require.Zero(t, client.LaneStats().Places)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool { return client.LaneStats().Places == 1 }, patience, time.Millisecond)
}

// TestWakeupsOfStreams: each message is counted by the stream that it is about, as one that has woken
// the peer or as one that has not.
func TestWakeupsOfStreams(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		quiet, _ := b.pair()
		before := quiet.Status()
		all := func() (posted, counted uint64) {
			s := client.Status()
			return s.Sent + s.CreditsSent + s.RecordsSent, s.Wakeups + s.Quiet
		}
		for range 20 {
			say(t, client, server)
		}
		if lane := client.LaneStats(); lane.WakeupsSent+lane.WakeupsSuppressed == 0 {
			require.NotEmpty(t, os.Getenv("RDMANET_TEST_ADDR"), "the software device counts")
			require.Zero(t, client.Status().Wakeups)
			t.Skip("the device does not count")
		}
		posted, counted := all()
		require.GreaterOrEqual(t, counted, uint64(20))
		require.InDelta(t, posted, counted, 2, "what waited for the peer to come up is counted for whom the next message is about")
		require.Equal(t, before.Wakeups+before.Quiet, quiet.Status().Wakeups+quiet.Status().Quiet, "it has said nothing")
		lane := client.LaneStats()
		require.GreaterOrEqual(t, lane.WakeupsSent+lane.WakeupsSuppressed, counted)
		require.GreaterOrEqual(t, lane.WakeupsSent, client.Status().Wakeups)
	})
}

// TestEndedStreamIsNotCountedFor: a lane keeps no stream that has ended for its count of wake-ups.
func TestEndedStreamIsNotCountedFor(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	_, _ = b.pair() // which keeps the lane
	say(t, client, server)
	say(t, server, client)
	e, ended := server.e, server.stream
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return !ended.end.counted
	}, patience, time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	require.NotSame(t, ended, e.countsFor)
}

// TestKeepAlivesOfStreams: a stream counts the signs of life that its lane asked for while it was there.
func TestKeepAlivesOfStreams(t *testing.T) {
	b := newBed(t, Config{
		CM:        cm.Options{Device: networkDevice()},
		KeepAlive: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Millisecond, Interval: time.Second, Count: 1000},
	})
	client, _ := b.pair()
	asked := func(s *Stream) uint64 { return s.Status().KeepAlives }
	require.Eventually(t, func() bool { return asked(client) >= 3 }, patience, time.Millisecond)
	late, _ := b.pair()
	few := asked(late)
	require.GreaterOrEqual(t, asked(client), few+3)
	require.Eventually(t, func() bool { return asked(late) > few }, patience, time.Millisecond)
	few = asked(late) // before the lane goes on
	require.GreaterOrEqual(t, client.LaneStats().KeepAlives, few+3)
	all := SumsOfLanes()[client.Device()]
	require.GreaterOrEqual(t, all.KeepAlives, uint64(3))
}
