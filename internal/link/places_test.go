package link

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link/hello"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// anotherLinks returns links of another dialer.
func (b *bed) anotherLinks() *Links {
	b.t.Helper()
	cfg := b.links.cfg
	cfg.Secret = hello.Secret{}
	links, err := NewLinks(cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = links.Close() })
	return links
}

// TestGreedyDialer: a dialer that wants all places there are, and opens nothing, keeps nobody
// out.
func TestGreedyDialer(t *testing.T) {
	b := newBed(t, Config{Backlog: 100, Places: 8})
	client, server := b.pair()
	say(t, client, server)
	for range 5 {
		client.e.mu.Lock()
		client.e.state.Want(int(lane.MaxStream))
		client.e.settle()
		client.e.mu.Unlock()
	}
	links := b.anotherLinks()
	within(t, "dials beside a greedy one", func() {
		for range 70 {
			s, err := links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
			require.NoError(t, err)
			defer s.Close()
		}
	})
	say(t, client, server)
}

// TestRecallUnanswered: a dialer that keeps places which others wait for, whatever it is asked,
// loses its lane by the rule's name.
func TestRecallUnanswered(t *testing.T) {
	b := newBed(t, Config{Backlog: 4, Places: 4, RecallTime: 50 * time.Millisecond})
	client, server := b.pair()
	say(t, client, server)
	require.Eventually(t, func() bool { // what it is to keep is granted behind what it asked for
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		return server.e.listener.share.stored > 0
	}, patience, time.Millisecond)
	client.e.mu.Lock() // it takes nothing in
	links := b.anotherLinks()
	within(t, "dials beside one that keeps its places", func() {
		for range 4 {
			s, err := links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
			require.NoError(t, err)
			defer s.Close()
		}
	})
	client.e.mu.Unlock()
	within(t, "the lane that was lost", func() {
		_, err := server.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNABORTED)
		require.ErrorIs(t, err, lane.RuleRecall)
	})
}

// TestRecallAnswered: one that gives them back keeps its lane, however long the others go on.
func TestRecallAnswered(t *testing.T) {
	b := newBed(t, Config{Backlog: 4, Places: 4, RecallTime: 2 * time.Second})
	client, server := b.pair()
	within(t, "dials in turns", func() {
		for range 10 {
			for _, links := range []*Links{b.anotherLinks(), b.links} {
				var ends []*Stream
				for range 4 {
					s, err := links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
					require.NoError(t, err)
					ends = append(ends, s)
				}
				for _, s := range ends {
					require.NoError(t, s.Close())
					require.NoError(t, b.accept().Close())
				}
			}
		}
	})
	say(t, client, server)
	server.e.mu.Lock()
	defer server.e.mu.Unlock()
	require.Zero(t, server.e.state.Recalled())
}

// TestMemoryForPlacesComes: a dial that waits since there was no memory for a place gets one
// when there is, though no stream of its lane ends.
func TestMemoryForPlacesComes(t *testing.T) {
	budget := budgetOf(3 * memory.ChunkSize)
	b := newBed(t, Config{Budget: budget, FirstRing: 64 << 10, MaxRing: 64 << 10, Places: 1})
	b.links.cfg.Budget = memory.Unbounded() // only the listener is short
	client, server := b.pair()
	say(t, client, server)
	rest := 0
	for budget.Take(1<<10, memory.ForStream) == nil {
		rest += 1 << 10
	}
	got := make(chan error, 1)
	go func() { // more than the lane has memory for
		var err error
		for range 8 {
			var s *Stream
			if s, err = b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()}); err != nil {
				break
			}
			defer s.Close()
		}
		got <- err
	}()
	require.Eventually(t, func() bool {
		b.l.mu.Lock()
		defer b.l.mu.Unlock()
		return server.e.listener.share.denied
	}, patience, time.Millisecond)
	budget.Give(rest)
	within(t, "a dial that waits for memory", func() {
		require.NoError(t, <-got)
	})
}
