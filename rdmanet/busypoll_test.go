package rdmanet

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBusyPollOfConn: a Read sleeps at once if it is told to, and polls for as long as that says.
func TestBusyPollOfConn(t *testing.T) {
	c, peer := pair(t)
	for _, d := range []time.Duration{-1, time.Hour, -1} {
		require.NoError(t, c.SetBusyPoll(d))
		before := c.Stats()
		read := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			read <- err
		}()
		if d < 0 || runtime.GOMAXPROCS(0) == 1 { // with one processor nobody polls
			require.Eventually(t, func() bool { return c.Stats().Parks > before.Parks }, patience, time.Millisecond)
		} else {
			time.Sleep(20 * time.Millisecond) // longer than it would poll by itself
		}
		_, err := peer.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, <-read)
		if d > 0 && runtime.GOMAXPROCS(0) > 1 {
			require.Equal(t, before.Parks, c.Stats().Parks)
		}
	}
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.SetBusyPoll(0), net.ErrClosed)
}
