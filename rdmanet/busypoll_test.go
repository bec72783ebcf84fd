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
	// read is a Read for which there is something later. It returns whether it has slept.
	read := func(wait func(parks uint64)) bool {
		parks := c.Stats().Parks
		done := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			done <- err
		}()
		wait(parks)
		_, err := peer.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, <-done)
		return c.Stats().Parks > parks
	}
	asleep := func(parks uint64) {
		require.Eventually(t, func() bool { return c.Stats().Parks > parks }, patience, time.Millisecond)
	}
	awake := func(uint64) { time.Sleep(20 * time.Millisecond) } // longer than it polls by itself
	for _, d := range []time.Duration{-1, time.Hour, -1} {
		require.NoError(t, c.SetBusyPoll(d))
		switch {
		case d < 0, runtime.GOMAXPROCS(0) == 1: // with one processor nobody polls
			read(asleep)
		default: // nor while others poll with all that there are
			for began := time.Now(); read(awake); {
				require.Less(t, time.Since(began), patience, "it sleeps")
			}
		}
	}
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.SetBusyPoll(0), net.ErrClosed)
}
