package link

import (
	"fmt"
	"sync"
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
	b := newBed(t, Config{Receives: 16, Records: 4})
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
			s.AwaitEnd()
			s.e.mu.Lock()
			defer s.e.mu.Unlock()
			done <- s.st.EndUnsent()
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
	last[0].AwaitEnd() // nor does it wait now
	e.mu.Lock()
	by := e.endsBy
	e.mu.Unlock()
	require.Zero(t, by)
}

// TestAwaitEndGivesUp: it waits neither for a lane that ends, nor for ever, and for all streams of a
// lane together.
func TestAwaitEndGivesUp(t *testing.T) {
	last, _ := behind(t)
	e := last[0].e
	e.mu.Lock()
	e.endsBy = time.Now().Add(time.Millisecond)
	e.mu.Unlock()
	within(t, "the last of patience", func() {
		for _, s := range last {
			s.AwaitEnd()
		}
	})
	e.mu.Lock()
	unsent := last[0].st.EndUnsent()
	e.endsBy = time.Now().Add(time.Hour)
	e.mu.Unlock()
	require.True(t, unsent)
	time.AfterFunc(10*time.Millisecond, func() { e.fail(ErrLinkClosed) })
	within(t, "the end of the lane", last[0].AwaitEnd)
}

// awaitHeld has AwaitEnd of a stream wait until letGo is called.
func awaitHeld(t *testing.T, s *Stream, letGo func()) {
	t.Helper()
	done := begun(func() error { s.AwaitEnd(); return nil })
	select {
	case <-done:
		t.Error("it has not waited")
	case <-time.After(50 * time.Millisecond):
	}
	letGo()
	within(t, "the end of a stream", func() { <-done })
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
					closes = other
				}
				hold, letGo := holdSends(closes.e)
				hold()
				defer letGo()
				require.NoError(t, closes.Close())
				if device != "asynchronous0" && role == lane.RoleDialer {
					awaitHeld(t, closes, letGo)
				} else {
					within(t, "the end of a stream", closes.AwaitEnd)
				}
			})
		}
	}
}

// TestAwaitEndAgain: a peer whose device has let streams wait in vain is waited for no more, until it
// has confirmed the end of one of them.
func TestAwaitEndAgain(t *testing.T) {
	needFailing(t)
	b := newBed(t, Config{CM: cm.Options{Device: "remote0"}, Lanes: 1})
	var clients []*Stream
	for range 3 {
		client, server := b.pair()
		say(t, client, server)
		clients = append(clients, client)
	}
	e := clients[0].e
	hold, letGo := holdSends(e)
	hold()
	e.mu.Lock()
	e.endsBy = time.Now().Add(time.Millisecond)
	e.mu.Unlock()
	for _, s := range clients[:2] {
		require.NoError(t, s.Close())
		within(t, "the end of a stream", s.AwaitEnd)
	}
	letGo()
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reapAndSettle()
		return !clients[1].endPending()
	}, patience, time.Millisecond)
	hold()
	require.NoError(t, clients[2].Close())
	awaitHeld(t, clients[2], letGo)
}
