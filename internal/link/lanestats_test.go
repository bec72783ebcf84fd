package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLaneStats: what both ends tell of a lane is what was done on it, and it goes with the
// lane.
func TestLaneStats(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Budget = budgetOf(1 << 30)
		b := newBed(t, cfg)
		require.Empty(t, b.links.Lanes())
		client, server := b.pair()
		b.pair()
		for range 10 {
			say(t, client, server)
		}
		say(t, server, client)
		enlarge(t, client, server)
		sent := uint64(10*5 + 2*int(server.e.cfg.MaxRing))
		var near, far LaneStats
		// The last messages may be under way.
		require.Eventually(t, func() bool {
			lanes, others := b.links.Lanes(), b.l.Lanes()
			require.Len(t, lanes, 1)
			require.Len(t, others, 1)
			near, far = lanes[0], others[0]
			return near.MessagesSent == far.MessagesReceived && far.MessagesSent == near.MessagesReceived && near.Places == far.Places &&
				near.Memory+far.Memory == cfg.Budget.InUse() // what has been left is being given back
		}, patience, time.Millisecond)
		require.True(t, near.Dialer && !far.Dialer)
		require.Equal(t, client.Device(), near.Device)
		require.Equal(t, b.l.Addr().Port(), near.Remote.Port())
		require.Equal(t, near.Remote, far.Local)
		require.Equal(t, 2, near.Streams)
		require.Equal(t, 2, far.Streams)
		require.EqualValues(t, 2, near.Opened)
		require.Zero(t, near.Waiting+far.Waiting)
		require.Equal(t, sent, near.BytesSent)
		require.Equal(t, sent, far.BytesReceived)
		require.EqualValues(t, 5, far.BytesSent)
		require.EqualValues(t, 5, near.BytesReceived)
		require.Greater(t, near.MessagesSent, uint64(11))
		require.LessOrEqual(t, near.FreeSlots, near.Slots)
		require.Equal(t, server.e.p.receives, near.Slots)
		require.Positive(t, far.Resizes)
		require.Zero(t, near.Refusals+far.Refusals)
		require.Equal(t, near.BytesSent, client.LaneStats().BytesSent)

		require.NoError(t, b.l.Close())
		client.e.fail(ErrLinkClosed)
		require.Eventually(t, func() bool { return len(b.links.Lanes()) == 0 && len(b.l.Lanes()) == 0 }, patience, time.Millisecond)
		require.Equal(t, sent, client.LaneStats().BytesSent)
	})
}

// TestLaneStatsOfShortMemory: refusals of memory are counted.
func TestLaneStatsOfShortMemory(t *testing.T) {
	b := newBed(t, Config{})
	b.l.cfg.Budget = budgetOf(1 << 20)
	client, server := b.pair()
	b.l.cfg.Budget.SetLimit(0)
	_, err := client.Write(make([]byte, DefaultFirstRing/2))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return server.LaneStats().Refusals > 0 }, patience, time.Millisecond)
}
