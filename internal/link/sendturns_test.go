package link

import (
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestSendTurns: streams are called in the order in which they came, as many as there is room for large
// messages; one that has found too little is the next again, and one that leaves is in nobody's way.
func TestSendTurns(t *testing.T) {
	var turns sendTurns
	e := new(laneEnd)
	streams := make([]*stream, 5)
	for i := range streams {
		streams[i] = &stream{e: e}
	}
	called := func() (all []int) {
		for i, s := range streams {
			if s.out.sendTurn == turnCalled {
				require.True(t, s.out.writable)
				all = append(all, i)
			}
		}
		require.Len(t, all, turns.called)
		return all
	}
	require.True(t, turns.may(streams[0], 0))
	for _, s := range streams[:4] {
		turns.await(s)
		turns.await(s) // which it does already
	}
	require.False(t, turns.may(streams[0], mostStaging))
	require.False(t, turns.may(streams[4], mostStaging), "others have waited for longer")
	turns.call(e, 0)
	require.Empty(t, called())
	turns.call(e, 1)
	require.Equal(t, []int{0}, called())
	turns.call(e, lane.MaxMessage)
	require.Equal(t, []int{0}, called(), "it has not taken its room yet")
	turns.call(e, lane.MaxMessage+1)
	require.Equal(t, []int{0, 1}, called())
	require.True(t, turns.may(streams[0], 0))
	require.False(t, turns.may(streams[2], mostStaging))

	turns.await(streams[0]) // there was too little
	require.Equal(t, []int{1}, called())
	turns.end(streams[1])
	turns.call(e, 1)
	require.Equal(t, []int{0}, called())
	turns.end(streams[2])
	turns.call(e, 4*lane.MaxMessage)
	require.Equal(t, []int{0, 3}, called())
	require.False(t, turns.may(streams[4], 2*lane.MaxMessage), "those that were called have not taken their room yet")
	require.True(t, turns.may(streams[4], 2*lane.MaxMessage+1))
	turns.end(streams[0])
	turns.end(streams[3])
	require.True(t, turns.may(streams[4], 0))
	require.Equal(t, 0, turns.called+len(turns.waiting))
}

// memoryPairs returns four pairs whose rings hold as much as the send memory of their lane, which is as large as it
// becomes, where it has one and the peer need not answer messages, of which fewer are under way then.
func memoryPairs(t *testing.T) (b *bed, clients, servers []*Stream) {
	t.Helper()
	b = newBed(t, Config{CM: asynchronous(), FirstRing: mostStaging, MaxRing: mostStaging, Lanes: 1})
	for range 4 {
		client, server := b.pair()
		clients, servers = append(clients, client), append(servers, server)
	}
	e := clients[0].e
	if e.p.synchronous || e.sq.confirm != nil {
		t.Skip("no send memory, or fewer messages than that are under way where the peer has to answer them")
	}
	e.moreStaging(t)
	return b, clients, servers
}

// allSent reports whether all send memory is being sent.
func allSent(s *staging) bool {
	return s.free() == 0 && !slices.ContainsFunc(s.entries, func(e *staged) bool { return e.last == 0 })
}

// TestSendMemoryInTurns: streams that wait for the send memory of their lane have it in turns. Else one of
// them would post all that it has before another does.
func TestSendMemoryInTurns(t *testing.T) {
	const pieces = mostStaging / lane.MaxMessage // that fill it
	b, clients, servers := memoryPairs(t)
	newcomer, _ := b.pair()
	e := clients[0].e
	var mu sync.Mutex
	var posted []lane.ID
	left, letGo := meterSends(e)
	e.mu.Lock()
	e.sq.qp = loggedQP{e.sq.qp, &mu, &posted}
	e.mu.Unlock()
	sent := make(chan error, len(clients))
	write := func(s *Stream) {
		_, err := s.Write(make([]byte, mostStaging))
		sent <- err
	}
	write(clients[0])
	require.NoError(t, <-sent)
	var want []lane.ID
	for i, client := range clients[1:] {
		go write(client)
		want = append(want, client.st.ID())
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.staging.turns.waiting) == 1+i
		}, patience, time.Millisecond, "a Write does not wait for send memory")
	}
	want = slices.Repeat(want, pieces)
	for i := range want {
		require.Eventually(t, func() bool {
			e.mu.Lock()
			mu.Lock()
			if len(posted) == pieces+i && allSent(&e.staging) { // what completes may be another request
				left.Store(1)
			}
			mu.Unlock()
			if e.reapAndSettle(); e.staging.turns.called > 0 { // and has not taken its room yet
				n, err := newcomer.send(make([]byte, 1<<10))
				require.NoError(t, err)
				require.Zero(t, n, "it takes what another was called for")
				newcomer.endTurn(&e.staging.turns)
			}
			waiting := len(e.staging.turns.waiting)
			require.True(t, e.blocks.Load() || waiting == 0, "nobody looks for completions")
			e.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			return len(posted) == pieces+i+1 && waiting == min(len(clients)-1, len(want)-i-1) // who has had it waits again
		}, patience, time.Millisecond, "nothing is posted when there is room")
	}
	letGo()
	within(t, "the streams", func() {
		for range clients[1:] {
			require.NoError(t, <-sent)
		}
	})
	require.Equal(t, want, posted[pieces:])
	e.mu.Lock()
	require.Zero(t, e.staging.turns.called+len(e.staging.turns.waiting))
	e.mu.Unlock()
	for _, server := range servers {
		require.NoError(t, server.Reset())
	}
}

// TestSendTurnGivenUp: a Write whose time is up while it waits for its turn, or when it is called, is in
// nobody's way.
func TestSendTurnGivenUp(t *testing.T) {
	_, clients, servers := memoryPairs(t)
	e := clients[0].e
	left, letGo := meterSends(e)
	_, err := clients[0].Write(make([]byte, mostStaging))
	require.NoError(t, err)
	sent := make([]chan error, len(clients))
	for i, client := range clients[1:] {
		sent[1+i] = make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, mostStaging))
			sent[1+i] <- err
		}()
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.staging.turns.waiting) == 1+i
		}, patience, time.Millisecond, "a Write does not wait for send memory")
	}
	require.NoError(t, clients[1].SetWriteDeadline(longPast))
	within(t, "a deadline", func() { require.Error(t, <-sent[1]) })
	e.mu.Lock()
	for allSent(&e.staging) { // what completes may be another request
		left.Store(1)
		e.reapAndSettle()
	}
	require.Equal(t, turnCalled, clients[2].out.sendTurn)
	clients[2].end.shut = true
	e.mu.Unlock()
	within(t, "one that has shut down writing", func() { require.ErrorIs(t, <-sent[2], syscall.EPIPE) })
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return clients[3].counts.sent > 0
	}, patience, time.Millisecond, "the Write behind them does not have the room")
	letGo()
	within(t, "the Write behind them", func() { require.NoError(t, <-sent[3]) })
	require.NoError(t, clients[1].SetWriteDeadline(time.Time{}))
	within(t, "a Buffer of the first", func() {
		got, err := clients[1].TakeBuffer()
		require.NoError(t, err)
		got.Free()
	})
	e.mu.Lock()
	require.Zero(t, e.staging.turns.called+len(e.staging.turns.waiting))
	e.mu.Unlock()
	for _, server := range servers {
		require.NoError(t, server.Reset())
	}
}
