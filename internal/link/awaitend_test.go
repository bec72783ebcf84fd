package link

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		if s.endUnsent() {
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
