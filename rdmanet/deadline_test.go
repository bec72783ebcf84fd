package rdmanet

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSinceEpoch(t *testing.T) {
	now := time.Now()
	require.Zero(t, sinceEpoch(time.Time{}))
	require.EqualValues(t, 1, sinceEpoch(longPast), "what has passed is not none")
	require.EqualValues(t, 1, sinceEpoch(now.AddDate(-500, 0, 0)))
	require.Equal(t, int64(math.MaxInt64), sinceEpoch(now.AddDate(500, 0, 0)))
	require.Equal(t, int64(math.MaxInt64), sinceEpoch(time.Unix(1<<40, 0)))
	require.InDelta(t, now.Add(time.Hour).Sub(epoch), sinceEpoch(now.Add(time.Hour)), float64(time.Second))
}

// TestFarDeadline has a deadline so far away that the time until it is no Duration.
func TestFarDeadline(t *testing.T) {
	client, server := pair(t)
	require.NoError(t, client.SetDeadline(time.Now().AddDate(500, 0, 0)))
	_, err := server.Write([]byte("x"))
	require.NoError(t, err)
	require.Equal(t, "x", string(readFull(t, client, 1)))
	_, err = client.Write([]byte("x"))
	require.NoError(t, err)
}

// TestLongestLinger has a linger time so long that it is no Duration.
func TestLongestLinger(t *testing.T) {
	client, _ := pair(t)
	require.NoError(t, client.SetLinger(math.MaxInt))
	require.True(t, client.life.incref(), "a call is inside, so Close has something to wait for")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = client.Close()
	}()
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	client.exit(client.life.decref())
	<-closed
}

// TestDeadlinesOfBothDirections: of two SetDeadlines at once one is the last for both
// directions, so that the other cannot come in between.
func TestDeadlinesOfBothDirections(t *testing.T) {
	c, _ := pair(t)
	read, write := &c.recv.waiter, &c.send.waiter
	write.mu.Lock()
	unlock := sync.OnceFunc(write.mu.Unlock)
	defer unlock()
	done := begun(func() error { return c.SetDeadline(time.Now().Add(time.Hour)) })
	// between reports whether somebody else may set the deadline of reads.
	between := func() bool {
		if read.mu.TryLock() {
			read.mu.Unlock()
			return true
		}
		return false
	}
	for began := time.Now(); between() && time.Since(began) < patience; {
		require.Zero(t, read.deadline.Load(), "it has set one of two, and lets others in")
		time.Sleep(10 * time.Microsecond)
	}
	for range 100 {
		require.False(t, between())
		time.Sleep(10 * time.Microsecond)
	}
	unlock()
	require.NoError(t, <-done)
	require.NotZero(t, read.deadline.Load())
	require.Equal(t, read.deadline.Load(), write.deadline.Load())
}
