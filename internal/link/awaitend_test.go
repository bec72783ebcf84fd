package link

import (
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// behind returns closed streams of a dialer whose listener takes nothing in, and has no room for
// the ends of the last of them, until goOn is called.
func behind(t *testing.T) (last []*Stream, goOn func()) {
	t.Helper()
	needFailing(t) // a device of one host
	b := newBed(t, Config{Receives: 16})
	var clients, servers []*Stream
	for range 12 {
		client, server := b.pair()
		say(t, client, server)
		clients, servers = append(clients, client), append(servers, server)
	}
	there := servers[0].e
	there.mu.Lock() // so that it takes nothing in
	goOn = sync.OnceFunc(there.mu.Unlock)
	t.Cleanup(goOn)
	for _, s := range clients {
		require.NoError(t, s.Close())
		s.e.mu.Lock()
		if s.endPending() {
			last = append(last, s)
		}
		s.e.mu.Unlock()
	}
	require.NotEmpty(t, last)
	return last, goOn
}

// TestAwaitEnd: a dialer waits until the ends of its streams are in the memory of a listener that has
// fallen behind, also of those that its lane has forgotten meanwhile, since the listener has ended
// them.
func TestAwaitEnd(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		awaitEnds(t, forgotten)
	}
}

func awaitEnds(t *testing.T, forgotten bool) {
	last, goOn := behind(t)
	done := make(chan bool, len(last))
	for _, s := range last {
		go func() {
			safe := s.AwaitEnd()
			s.e.mu.Lock()
			defer s.e.mu.Unlock()
			done <- !safe || s.st.EndUnsent()
		}()
	}
	select {
	case <-done:
		t.Error("it has not waited")
	case <-time.After(50 * time.Millisecond):
	}
	e := last[0].e
	if forgotten {
		e.mu.Lock()
		for _, s := range last {
			e.streams.Set(s.st.ID(), nil)
		}
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			for _, s := range last {
				e.streams.Set(s.st.ID(), s.stream)
				s.free()
			}
		}()
	}
	goOn()
	within(t, "the ends of streams", func() {
		for range last {
			require.False(t, <-done)
		}
	})
	require.True(t, atOnce(t, last[0])) // nor does it wait now
}

// atOnce is awaitEnd, which must not wait.
func atOnce(t *testing.T, s *Stream) bool {
	t.Helper()
	e := s.e
	var waited atomic.Bool
	e.mu.Lock()
	defer e.mu.Unlock()
	go func() { // a wait lets go of the lock
		e.mu.Lock()
		defer e.mu.Unlock()
		waited.Store(true)
	}()
	safe := s.awaitEnd()
	require.False(t, waited.Load())
	return safe
}

// awaitHeld has AwaitEnd of a stream wait until letGo is called.
func awaitHeld(t *testing.T, s *Stream, letGo func()) {
	t.Helper()
	done := make(chan bool, 1)
	go func() { done <- s.AwaitEnd() }()
	select {
	case <-done:
		t.Error("it has not waited")
	case <-time.After(50 * time.Millisecond):
	}
	letGo()
	within(t, "the end of a stream", func() { require.True(t, <-done) })
}

// TestAwaitEndOverNetwork: there an end is safe when the peer's device has confirmed it. A dialer
// waits for that; a listener for a moment; within a host neither does.
func TestAwaitEndOverNetwork(t *testing.T) {
	needFailing(t)
	for _, device := range []string{"remote0", "remote0-iwarp", "asynchronous0"} {
		for _, role := range []lane.Role{lane.RoleDialer, lane.RoleListener} {
			t.Run(fmt.Sprint(device, "/", role), func(t *testing.T) {
				b := newBed(t, Config{CM: cm.Options{Device: device}})
				closes, other := b.pair()
				say(t, closes, other)
				if role == lane.RoleListener {
					closes, other = other, closes
				}
				stopped(t, other) // it would answer the end
				hold, letGo := holdSends(closes.e)
				hold()
				defer letGo()
				require.NoError(t, closes.Close())
				if device != "asynchronous0" && role == lane.RoleDialer {
					awaitHeld(t, closes, letGo)
				} else {
					within(t, "the end of a stream", func() { require.True(t, closes.AwaitEnd()) })
				}
			})
		}
	}
}

// heldStreams returns streams of one lane over a network, which confirms nothing until it is let go.
func heldStreams(t *testing.T, n int) (clients []*Stream, hold, letGo func()) {
	t.Helper()
	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: "remote0"}, Lanes: 1})
	var server *Stream
	for range n {
		var client *Stream
		client, server = b.pair()
		say(t, client, server)
		clients = append(clients, client)
	}
	stopped(t, server) // it would answer the ends
	hold, letGo = holdSends(clients[0].e)
	hold()
	t.Cleanup(letGo)
	return clients, hold, letGo
}

// TestAwaitEndGivesUp: where the peer's device confirms nothing, one stream waits for a while and says
// so, and those behind it do not wait, on this lane and for a moment on others of the link, until
// there is progress.
func TestAwaitEndGivesUp(t *testing.T) {
	mostlyWaits(t)
	clients, hold, letGo := heldStreams(t, 4)
	e := clients[0].e
	givenUp := e.owner.endsGivenUp(e)
	for _, s := range clients[:3] {
		require.NoError(t, s.Close())
	}
	within(t, "the last of patience", func() { require.False(t, clients[0].AwaitEnd()) })
	require.True(t, givenUp.recent())
	givenUp.at.Store(0)
	require.False(t, atOnce(t, clients[1]))
	e.mu.Lock()
	e.ends.stall = endProgress{} // as on another lane
	givenUp.now()
	left := clients[2].endPatience()
	e.mu.Unlock()
	require.Equal(t, shortPatience, left)
	within(t, "what is left of patience", func() { require.False(t, clients[2].AwaitEnd()) })

	letGo()
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reapAndSettle()
		return !clients[2].endPending()
	}, patience, time.Millisecond)
	hold()
	givenUp.at.Store(0)
	require.NoError(t, clients[3].Close())
	awaitHeld(t, clients[3], letGo)
}

// TestAwaitEndOfALaneThatEnds: nothing can be confirmed any more.
func TestAwaitEndOfALaneThatEnds(t *testing.T) {
	clients, _, _ := heldStreams(t, 1)
	require.NoError(t, clients[0].Close())
	awaitHeld(t, clients[0], func() { clients[0].e.fail(ErrLinkClosed) })
}

// TestAwaitEndOfNothing: a stream that has failed does not wait, nor one whose peer reads nothing
// any more.
func TestAwaitEndOfNothing(t *testing.T) {
	clients, _, _ := heldStreams(t, 1)
	e := clients[0].e
	e.mu.Lock()
	clients[0].failWith(errNoAnswer)
	e.mu.Unlock()
	require.NoError(t, clients[0].Close())
	require.True(t, atOnce(t, clients[0]))

	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: "remote0"}})
	client, server := b.pair()
	say(t, client, server)
	hold, letGo := holdSends(client.e)
	hold()
	t.Cleanup(letGo)
	require.NoError(t, server.Close())
	within(t, "the end of file", func() {
		_, err := client.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	})
	require.NoError(t, client.Close())
	require.True(t, atOnce(t, client))
}

// TestAwaitEndStartsWorker: what AwaitEnd takes in for others may be work, which is done though nothing
// more happens on the lane.
func TestAwaitEndStartsWorker(t *testing.T) {
	client, server := newBed(t, Config{Idle: patience}).pair()
	say(t, client, server)
	e := client.e
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.live == 0 && !e.work.any() && !e.work.running
	}, patience, time.Millisecond)
	e.mu.Lock()
	e.work.trim = true
	e.hasWork.Store(true)
	e.mu.Unlock()
	require.True(t, client.AwaitEnd())
	require.Eventually(t, func() bool { return !e.hasWork.Load() }, patience, time.Millisecond)
}

// TestAwaitEndForOtherClients: a client that takes nothing in has no listener give up the ends of other
// clients' streams.
func TestAwaitEndForOtherClients(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: "remote0"}})
	_, server := b.pair()
	e := server.e
	e.mu.Lock()
	defer e.mu.Unlock()
	other := &laneEnd{listener: listenerPart{ports: lanePorts{host: netip.MustParseAddr("192.0.2.1")}}}
	require.True(t, b.l.clients.take(other.listener.ports.host, firstPort))
	now := int64(time.Since(epoch) + time.Hour) // and for as long as the test takes
	b.l.endsGivenUp(other).at.Store(now)
	require.True(t, b.l.endsGivenUp(other).recent())
	require.Equal(t, shortPatience, server.endPatience())
	b.l.endsGivenUp(e).at.Store(now)
	require.Zero(t, server.endPatience())
	b.l.clients.free(other.listener.ports.host, firstPort, 1)
	require.False(t, b.l.endsGivenUp(other).recent())
}
