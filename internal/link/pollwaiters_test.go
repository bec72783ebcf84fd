package link

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// aboutToLeave has a call have the poll role that is about to leave it: it may have polled for the last
// time, and not run for as long as it likes.
func (e *laneEnd) aboutToLeave(t *testing.T) lane.Waiter {
	t.Helper()
	var n lane.Waiter
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.polling.role.Holder() != 0 {
			return false
		}
		w := new(waiter)
		e.polling.enter(w)
		n = w.number
		e.polling.calls[n-1] = nil
		return e.polling.role.Wait(n)
	}, patience, time.Millisecond)
	return n
}

// TestCloseBehindWhoLeaves: Close finds what has come although the call that has the poll role polls no
// more: the peer, of which something is unread, has a reset.
func TestCloseBehindWhoLeaves(t *testing.T) {
	for _, fails := range []bool{false, true} {
		b := newBed(t, Config{})
		client, server := b.pair()
		say(t, client, server)
		e := server.e
		n := e.aboutToLeave(t)
		_, err := client.Write([]byte("nobody reads this"))
		require.NoError(t, err)
		closed := make(chan error, 1)
		go func() { closed <- server.Close() }()
		require.Eventually(t, e.pollWaiters.any, patience, time.Millisecond, "Close does not wait for a poll")
		if fails {
			e.fail(errGone)
		}
		e.leave(n)
		within(t, "Close", func() { require.NoError(t, <-closed) })
		if !fails {
			_, err = client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
	}
}

// TestCloseBesideRead: likewise where a Read of another stream of the lane has the poll role, and
// sleeps, or is to have it next. It waits for nothing that the Read waits for.
func TestCloseBesideRead(t *testing.T) {
	for _, next := range []bool{false, true} {
		b := newBed(t, Config{})
		c1, s1 := b.pair()
		c2, s2 := b.pair()
		_, s3 := b.pair()
		say(t, c1, s1)
		say(t, c2, s2)
		e := s1.e
		require.Same(t, e, s2.e)
		n := lane.Waiter(0)
		if next {
			n = e.aboutToLeave(t)
		}
		read := make(chan error, 1)
		go func() {
			_, err := s2.Read(make([]byte, 1))
			read <- err
		}()
		if next {
			require.Eventually(t, s2.in.waiter.waiting, patience, time.Millisecond)
		} else {
			require.Eventually(t, s2.in.waiter.inChannel.Load, patience, time.Millisecond)
			within(t, "Close of a stream of which nothing has come", func() { require.NoError(t, s3.Close()) })
			require.Eventually(t, s2.in.waiter.inChannel.Load, patience, time.Millisecond)
		}
		_, err := c1.Write([]byte("nobody reads this"))
		require.NoError(t, err)
		closed := make(chan error, 1)
		go func() { closed <- s1.Close() }()
		if next {
			require.Eventually(t, e.pollWaiters.any, patience, time.Millisecond)
			e.leave(n)
		}
		within(t, "Close", func() { require.NoError(t, <-closed) })
		_, err = c1.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = c2.Write([]byte("x"))
		require.NoError(t, err)
		within(t, "Read", func() { require.NoError(t, <-read) })
	}
}

// TestCloseTogether: many streams of a lane close at once, beside Reads that come and go. Each Close
// finds what had come.
func TestCloseTogether(t *testing.T) {
	b := newBed(t, Config{})
	const streams = 16
	c0, s0 := b.pair()
	stop := make(chan struct{})
	var talk sync.WaitGroup
	talk.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				all(func() { say(t, c0, s0) }, func() { say(t, s0, c0) })
			}
		}
	})
	for range 20 {
		var closing sync.WaitGroup
		for range streams {
			client, server := b.pair()
			_, err := client.Write([]byte("nobody reads this"))
			require.NoError(t, err)
			closing.Go(func() {
				assert.NoError(t, server.Close())
				_, err := client.Read(make([]byte, 1))
				assert.ErrorIs(t, err, syscall.ECONNRESET)
				assert.NoError(t, client.Close())
			})
		}
		within(t, "Close", closing.Wait)
	}
	close(stop)
	within(t, "the conversation", talk.Wait)
}

// TestCloseAsksForAPoll: Close has a poll begin beside the call that polls, since what has come and
// was not read decides how the stream ends; where the peer has said that there is no more, it asks
// for none.
func TestCloseAsksForAPoll(t *testing.T) {
	b := newBed(t, Config{})
	_, waits := b.pair()
	read := make(chan error, 1)
	go func() {
		_, err := waits.Read(make([]byte, 1))
		read <- err
	}()
	require.Eventually(t, waits.in.waiter.waiting, patience, time.Millisecond)
	for _, ended := range []bool{false, true} {
		client, server := b.pair()
		require.Same(t, waits.e, server.e)
		if ended {
			require.NoError(t, client.CloseWrite())
			_, err := server.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
		}
		asked := server.e.pollWaiters.asked.Load()
		require.NoError(t, server.Close())
		require.Equal(t, ended, server.e.pollWaiters.asked.Load() == asked)
		require.NoError(t, client.Close())
	}
	require.NoError(t, waits.Close())
	require.Error(t, <-read)
}

// pollNow takes in what has come by now.
func (e *laneEnd) pollNow() {
	e.mu.Lock()
	e.pollOnce()
	e.mu.Unlock()
	e.startWorker()
}
