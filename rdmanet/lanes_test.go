package rdmanet

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLanes: each connection tells which lane carries it, and what the lane tells is what its
// connections did.
func TestLanes(t *testing.T) {
	waitForNone(t)
	client, server := pair(t)
	write(t, client, 100)
	readFull(t, server, 100)

	lane := func(c *Conn) LaneInfo {
		i := c.info()
		for _, l := range Lanes() {
			if l.ID == i.Lane {
				require.Equal(t, i.Link, l.Link)
				require.Equal(t, i.Device, l.Device)
				require.Equal(t, i.Accepted, l.Accepted)
				return l
			}
		}
		t.Fatalf("the lane %d of %v is not listed", i.Lane, c.LocalAddr())
		return LaneInfo{}
	}
	posted := client.Stats().DoorbellsSent
	near, far := lane(client), lane(server)
	require.NotEqual(t, near.ID, far.ID)
	require.Equal(t, near.Epoch, far.Epoch)
	require.Equal(t, near.Local, far.Remote)
	require.Equal(t, near.Remote, far.Local)
	require.Contains(t, []LaneState{LaneUp, LaneGoingAway}, near.State, "the listener is closed by now")
	require.WithinDuration(t, time.Now(), near.Since, patience)
	require.Positive(t, near.Conns)
	require.Positive(t, near.Opened)
	require.GreaterOrEqual(t, near.BytesSent, uint64(100))
	require.GreaterOrEqual(t, far.BytesReceived, uint64(100))
	require.Positive(t, near.Receives)
	require.LessOrEqual(t, near.Credits, near.Receives)
	require.Positive(t, near.SendQueueSize)
	require.Positive(t, near.Registered)
	require.GreaterOrEqual(t, near.MessagesSent, posted)

	found := false
	for _, d := range ReadStats().Devices {
		if d.Device != near.Device {
			continue
		}
		found = true
		require.Positive(t, d.Lanes.Dialled.Open)
		require.Positive(t, d.Lanes.Accepted.Open)
		require.GreaterOrEqual(t, d.Lanes.Dialled.Total, uint64(d.Lanes.Dialled.Open))
		require.GreaterOrEqual(t, d.Lanes.MessagesSent, near.MessagesSent)
		require.GreaterOrEqual(t, d.WakeupsSent+d.WakeupsSuppressed, near.WakeupsSent+near.WakeupsSuppressed)
	}
	require.True(t, found)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool {
		for _, l := range Lanes() {
			if l.ID == near.ID || l.ID == far.ID {
				return false
			}
		}
		return true
	}, patience, time.Millisecond, "a lane without connections goes after a while")
}

func TestLaneStatePrints(t *testing.T) {
	b, err := json.Marshal(LaneInfo{State: LaneGoingAway})
	require.NoError(t, err)
	require.Contains(t, string(b), `"State":"GOING-AWAY"`)
	require.Equal(t, "?", LaneState(200).String())
}

// TestLinkedWakeups: messages wake a reader that sleeps, each one at most, and every message is
// counted.
func TestLinkedWakeups(t *testing.T) {
	client, server := pair(t)
	got := make(chan int)
	go func() {
		defer close(got)
		b := make([]byte, 1)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			got <- n
		}
	}()
	deviceCounts := func() bool {
		return slices.ContainsFunc(Lanes(), func(l LaneInfo) bool { return l.WakeupsSent+l.WakeupsSuppressed > 0 })
	}
	const wanted = 10
	var parks uint64
	within(t, patience, "sleepers are woken", func() {
		for n := 0; client.Stats().WakeupsSent < wanted; n++ {
			for server.Stats().Parks == parks { // it sleeps, or is about to
				time.Sleep(50 * time.Microsecond)
			}
			parks = server.Stats().Parks
			_, err := client.Write([]byte("x"))
			require.NoError(t, err)
			<-got
			if n == 20 && !deviceCounts() {
				return // who wakes a sleeper of a real device is its kernel, which does not count
			}
		}
	})
	s := client.Stats()
	if s.WakeupsSent > 0 {
		require.LessOrEqual(t, s.WakeupsSent, s.DoorbellsSent, "at most one for each message")
		require.InDelta(t, s.DoorbellsSent, s.WakeupsSent+s.WakeupsSuppressed, 2)
	}
	require.NoError(t, server.SetReadDeadline(time.Unix(1, 0)))
	_, open := <-got
	require.False(t, open)
}

// TestStallCounts: a Write that waits counts while it waits, of the connection and of the
// process.
func TestStallCounts(t *testing.T) {
	waitForNone(t)
	client, server := flavour{
		dialer: Dialer{ReadBuffer: MinReadBuffer}, listen: ListenConfig{ReadBuffer: MinReadBuffer},
	}.pair(t)
	all := func() (sum ConnStats) {
		for _, d := range ReadStats().Devices {
			sum.add(&d.ConnStats)
		}
		return sum
	}
	before := all()
	written := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, 64*MinReadBuffer))
		written <- err
	}()
	require.Eventually(t, func() bool { return client.Stats().CreditStallTime > 0 }, patience, time.Millisecond)
	first := client.Stats()
	require.Positive(t, first.CreditStalls)
	for range 3 { // it goes on
		last := client.Stats().CreditStallTime
		require.Eventually(t, func() bool { return client.Stats().CreditStallTime > last }, patience, time.Millisecond)
	}
	now := all()
	require.Greater(t, now.CreditStalls, before.CreditStalls)
	require.GreaterOrEqual(t, now.CreditStallTime-before.CreditStallTime, first.CreditStallTime)
	require.Empty(t, written, "nobody reads")
	readFull(t, server, 64*MinReadBuffer)
	require.NoError(t, <-written)
	last := client.Stats()
	require.Greater(t, last.CreditStallTime, first.CreditStallTime)
	require.Equal(t, last.CreditStallTime, client.Stats().CreditStallTime, "no Write waits any more")
}
