package rdmanet

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
