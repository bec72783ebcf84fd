package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// needProcessors is for what polls, which nobody does with one processor.
func needProcessors(t *testing.T) {
	if lookAtProcs(); procs.Load() == 1 {
		t.Skip("with one processor nobody polls")
	}
}

// TestAcceptPolls: an Accept that waits when a stream was closed takes in the next one itself. The
// peer wakes nobody.
func TestAcceptPolls(t *testing.T) {
	needProcessors(t)
	b := newBed(t, Config{})
	client, server := b.pair()
	e := server.e
	for range 2 { // a stream comes to Accept when the device knows where to write to, as it then does
		other, accepted := b.pair()
		require.NoError(t, accepted.Close())
		require.NoError(t, other.Close())
	}
	endless(t, e)
	awaitKept(t, client, server)
	b.l.BeginAccept()
	defer b.l.EndAccept()
	b.l.Poll() // as an Accept does
	require.NoError(t, server.Close())
	require.True(t, roleKept(server))
	require.Len(t, b.l.Ready(), 1)
	woken := func() uint64 {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.counts.wakeups
	}
	before := woken()

	for range 3 {
		client = b.dial()
		server, err := b.l.TryAccept()
		require.NoError(t, err)
		require.Nil(t, server, "nobody has polled yet")
		b.l.Poll()
		server, err = b.l.TryAccept()
		require.NoError(t, err)
		require.NotNil(t, server)
		require.True(t, roleKept(server), "left to the calls of the stream")
		b.l.Poll()
		require.NoError(t, server.Close())
		require.NoError(t, client.Close())
	}
	require.Equal(t, before, woken())
}

// TestAcceptThatIsOver: a lane that was left to an Accept is heard all the same when that does not
// come, has given up, or has found a stream of another lane.
func TestAcceptThatIsOver(t *testing.T) {
	needProcessors(t)
	b := newBed(t, Config{})
	heard := func() {
		t.Helper()
		_, before := b.l.Opened()
		b.dial()
		require.Eventually(t, func() bool {
			_, all := b.l.Opened()
			return all > before
		}, patience, time.Millisecond)
		b.accept()
	}
	// leave has an Accept wait, to which the lane of a stream is left that is closed, for ever.
	leave := func() *laneEnd {
		t.Helper()
		client, server := b.pair()
		endless(t, server.e)
		awaitKept(t, client, server)
		b.l.BeginAccept()
		require.NoError(t, server.Close())
		require.Same(t, server.e, b.l.acceptor.lane)
		return server.e
	}
	e := leave()
	notEndless(e) // Accept is in no hurry
	heard()
	b.l.EndAccept()

	e = leave()
	b.l.EndAccept()
	require.Nil(t, b.l.acceptor.lane)
	heard()
	notEndless(e)

	e = leave()
	a := &b.l.acceptor
	b.l.mu.Lock()
	a.lane, a.found, a.polling = nil, &laneEnd{}, true
	a.call.state.Store(waiterWoken)
	b.l.mu.Unlock()
	e.pollForStreams(&a.call, b.l.foundBy)
	b.l.mu.Lock()
	a.polling, a.found = false, nil
	b.l.mu.Unlock()
	heard()
	notEndless(e)
	b.l.EndAccept()

	e = leave()
	e.fail(errGone)
	<-e.done
	require.Nil(t, a.lane, "the end of a lane is kept")
	b.l.EndAccept()
}

// TestAcceptTakesOver: an Accept polls one lane at a time, if it waits, as long as that pays.
func TestAcceptTakesOver(t *testing.T) {
	needProcessors(t)
	l := &Listener{ready: make(chan struct{}, 1), closed: make(chan struct{})}
	a := &l.acceptor
	e := &laneEnd{}
	require.False(t, l.takesOver(e), "no Accept waits")
	l.BeginAccept()
	require.True(t, l.takesOver(e))
	require.Len(t, l.ready, 1)
	require.False(t, l.takesOver(e), "it has a lane")
	l.BeginAccept()
	<-l.ready
	l.EndAccept()
	require.Len(t, l.ready, 1, "it is left to the other Accept")
	require.Equal(t, e, a.lane)
	a.lane, a.polling = nil, true
	require.False(t, l.takesOver(e), "it polls")
	a.polling = false
	l.accepted = append(l.accepted, &stream{})
	require.False(t, l.takesOver(e), "it need not wait")
	l.accepted = nil

	a.call.pays.miss()
	require.False(t, l.takesOver(e), "the last time nothing came")
	require.NotZero(t, a.left)
	a.left = time.Since(epoch) - time.Hour
	a.opened(e)
	require.False(t, l.takesOver(e), "nor soon after")
	a.left = time.Since(epoch) + time.Hour // sooner than soon
	a.opened(e)
	require.Zero(t, a.left)
	require.True(t, l.takesOver(e))
	a.lane = nil
	close(l.closed)
	require.False(t, l.takesOver(e), "the listener is closed")
}
