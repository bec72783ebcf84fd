package link

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWakeups: a lane keeps a number of channels, and nobody's token in them.
func TestWakeups(t *testing.T) {
	var w wakeups
	var all []chan struct{}
	for range 2 * spareWakeups {
		all = append(all, w.take())
	}
	for _, c := range all {
		c <- struct{}{}
		w.give(c)
	}
	require.Len(t, w, spareWakeups)
	for range spareWakeups {
		c := w.take()
		require.Contains(t, all, c)
		require.Empty(t, c)
	}
	require.NotContains(t, all, w.take())
}

// TestWakeupsComeBack: what a Read has parked with, and Close has waited with, is there for the next
// stream.
func TestWakeupsComeBack(t *testing.T) {
	b := newBed(t, Config{Lanes: 1})
	_, polls := b.pair()
	e := polls.e
	read := make(chan error, 1)
	wait := func(s *Stream) {
		go func() {
			_, err := s.Read(make([]byte, 1))
			read <- err
		}()
		require.Eventually(t, s.in.waiter.waiting, patience, time.Millisecond)
	}
	wait(polls) // has the poll role from now on
	spare := 0
	for i := range 4 {
		c, s := b.pair()
		require.Same(t, e, s.e)
		wait(s)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		within(t, "Read", func() { require.NoError(t, <-read) })
		require.NoError(t, s.Close())
		e.mu.Lock()
		if i == 0 {
			spare = len(e.polling.wakeups)
		}
		require.Len(t, e.polling.wakeups, spare)
		for _, c := range e.polling.wakeups {
			require.Empty(t, c)
		}
		e.mu.Unlock()
	}
	require.GreaterOrEqual(t, spare, 2)
	require.NoError(t, polls.Close())
	within(t, "Read", func() { require.ErrorIs(t, <-read, net.ErrClosed) })
}

// TestTeardownAwaitsWaits: what a lane consists of is destroyed when the last call that waits has left.
func TestTeardownAwaitsWaits(t *testing.T) {
	b := newBed(t, Config{})
	client, _ := b.pair()
	e := client.e
	e.mu.Lock()
	e.polling.waits.n += 2
	e.mu.Unlock()
	e.fail(errRetired)
	leave := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		require.True(t, e.polling.waits.task)
		e.waitEnds()
	}
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.polling.waits.task
	}, patience, time.Millisecond, "teardown does not look at the calls that wait")
	leave()
	select {
	case <-e.done:
		require.Fail(t, "the lane is destroyed while a call waits")
	default:
	}
	leave()
	within(t, "teardown", func() { <-e.done })
	require.False(t, e.polling.waits.task)
}

// TestReleaseLeavesToken: a call that was woken, and has not left yet, finds its token though its stream was
// closed.
func TestReleaseLeavesToken(t *testing.T) {
	var e laneEnd
	var w waiter
	w.begin(&e, true)
	require.True(t, w.waiting())
	w.wake(&e)
	require.True(t, w.woken())
	w.release(&e)
	w.sleep()
	w.end()
	require.True(t, w.woken(), "the next call begins anew")
	w.release(&e)
	require.Nil(t, w.wakeup)

	w.begin(&e, true)
	require.True(t, w.waiting())
	w.end()
	require.False(t, w.waiting() || w.woken())
}
