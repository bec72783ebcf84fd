package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestRingAge(t *testing.T) {
	var a ringAge
	for i, step := range []struct {
		received, buffered uint64
		unused             int
	}{
		{5000, 0, 0},    // a burst since the last look
		{5000, 0, 1},    // silence
		{5500, 0, 2},    // so little that a small ring would do
		{6012, 0, 3},    // just as little
		{6525, 0, 0},    // more than half of it
		{6525, 1, 0},    // something lies there
		{6525, 0, 1},    //
		{6525, 0, 2},    //
		{1 << 40, 0, 0}, // a burst again
	} {
		require.Equal(t, step.unused, a.look(step.received, step.buffered, 1024), "step %d", i)
	}
}

// ringOf returns the size of the ring that the peer of s writes to.
func ringOf(s *Stream) uint32 {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.st.Receiver().Ring().Size
}

// enlarge has the ring at an end grow to the largest, and reads it empty.
func enlarge(t *testing.T, from, to *Stream) {
	t.Helper()
	largest := to.e.cfg.MaxRing
	data := bytes.Repeat([]byte("0123456789abcdef"), int(largest)/16)
	within(t, "growth", func() {
		all(func() {
			for range 2 {
				_, err := from.Write(data)
				require.NoError(t, err)
			}
		}, func() {
			require.Eventually(t, func() bool { return ringOf(to) == largest }, patience, time.Millisecond)
			for range 2 {
				got := make([]byte, len(data))
				_, err := io.ReadFull(to, got)
				require.NoError(t, err)
				require.True(t, bytes.Equal(data, got))
			}
		})
	})
}

// TestGrowsAlthoughRead: a ring that was too small grows also when all of it is read before the
// worker comes to it.
func TestGrowsAlthoughRead(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		say(t, client, server)
		small, e := ringOf(server), server.e
		require.Eventually(t, func() bool { // the worker is kept from beginning
			e.mu.Lock()
			defer e.mu.Unlock()
			free := !e.work.running
			e.work.running = true
			return free
		}, patience, time.Millisecond)
		within(t, "filling half of a ring", func() {
			all(func() {
				_, err := client.Write(make([]byte, small/2))
				require.NoError(t, err)
			}, func() {
				_, err := io.ReadFull(server, make([]byte, small/2))
				require.NoError(t, err)
			})
		})
		require.Equal(t, small, ringOf(server))
		e.mu.Lock()
		e.work.running = false
		e.mu.Unlock()
		e.startWorker()
		require.Eventually(t, func() bool { return ringOf(server) > small }, patience, time.Millisecond)
	})
}

// TestGrowsByWhatIsUnread: a ring that is half full is followed by one four times as large, and a full one by the
// largest that shares a chunk.
func TestGrowsByWhatIsUnread(t *testing.T) {
	for unread, want := range map[int]uint32{tinyRing / 2: tinyRing * chunkGrowth, tinyRing: memory.ChunkSize} {
		client, server := newBed(t, Config{FirstRing: tinyRing}).pair()
		_, err := client.Write(make([]byte, unread))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := client.Write([]byte{0}) // which has it move to the ring that it was offered
			return err == nil && ringOf(server) > tinyRing
		}, patience, time.Millisecond)
		require.Equal(t, want, ringOf(server))
	}
}

// watching reports whether the lane of s has a timer for its memory.
func watching(s *Stream) bool {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.e.memory.ticking
}

// TestRingsShrink: rings that were large, at either end or both, become small again when
// nothing comes for a while. Their memory goes back, nobody is in a call for it, the timer ends,
// and bytes go on as before.
func TestRingsShrink(t *testing.T) {
	mostlyWaits(t)
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Shrink = 20 * time.Millisecond
		cfg.Budget = budgetOf(1 << 30)
		b := newBed(t, cfg)
		client, server := b.pair()
		neighbour, beside := b.pair()
		small := cfg.FirstRing
		if small == 0 {
			small = DefaultFirstRing
		}
		for round := range 3 {
			if round != 1 {
				enlarge(t, client, server)
			}
			if round != 0 {
				enlarge(t, server, client)
			}
			for _, s := range []*Stream{client, server} {
				require.Eventually(t, func() bool { return ringOf(s) == small && !watching(s) }, patience, time.Millisecond, "round %d", round)
			}
			// The chunk of the small rings, and one in store, at each end.
			require.Eventually(t, func() bool { return cfg.Budget.InUse() <= 4*memory.ChunkSize }, patience, time.Millisecond)
			for range 3 {
				say(t, client, server)
				say(t, server, client)
				say(t, neighbour, beside)
			}
		}
	})
}

// TestRingAfterTheEnd: a ring to which nothing comes any more goes when it is empty, though
// this end is not closed.
func TestRingAfterTheEnd(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.Shrink = 20 * time.Millisecond
		b := newBed(t, cfg)
		client, server := b.pair()
		enlarge(t, client, server)
		require.NoError(t, client.CloseWrite())
		_, err := server.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Eventually(t, func() bool {
			server.e.mu.Lock()
			defer server.e.mu.Unlock()
			return !server.e.memory.ticking && (len(server.in.pieces) == 0 || server.st.Receiver().Ring().Size == server.e.cfg.FirstRing)
		}, patience, time.Millisecond)
		say(t, server, client)
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestOfferThatCrossesTheEnd: a ring that was offered goes back, though the peer has ended what it sends without moving
// there.
func TestOfferThatCrossesTheEnd(t *testing.T) {
	b := newBed(t, Config{Shrink: 20 * time.Millisecond})
	client, server := b.pair()
	c, s := client.e, server.e
	small := s.cfg.FirstRing
	hold := int(small / 4)
	_, err := client.Write(make([]byte, hold))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, hold))
	require.NoError(t, err)
	had := func() (size uint32) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range server.in.pieces {
			size += p.Ring().Size
		}
		return size
	}
	c.mu.Lock() // the client hears of nothing meanwhile
	s.mu.Lock()
	server.in.wants = true
	s.growDue(server.stream)
	s.mu.Unlock()
	s.startWorker()
	require.Eventually(t, func() bool { return had() > small }, patience, time.Millisecond)
	client.end.shut = true
	require.NoError(t, c.state.CloseWrite(client.st))
	c.settle()
	c.mu.Unlock()
	c.startWorker()
	_, err = server.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Eventually(t, func() bool { return had() <= small }, patience, time.Millisecond)
	say(t, server, client)
}

// look is one look at the memory of a lane whose timer is an hour away, and what it has had done.
func look(t *testing.T, s *Stream) {
	e := s.e
	e.mu.Lock()
	if e.memory.ticking {
		e.memory.timer.Stop()
	}
	e.mu.Unlock()
	e.lookAtMemory()
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return !e.work.running && !e.work.any()
	}, patience, time.Millisecond)
}

// TestShortMemory: where memory is short the large rings that are not used are taken back at
// once, so that others grow; where it is not they are left for a while.
func TestShortMemory(t *testing.T) {
	for _, short := range []bool{false, true} {
		b := newBed(t, Config{Shrink: time.Hour, MaxRing: 1 << 20})
		serverBudget := budgetOf(1 << 30)
		b.l.cfg.Budget = serverBudget
		client, server := b.pair()
		enlarge(t, client, server)
		look(t, server) // which sees what has come
		if short {
			serverBudget.SetLimit(serverBudget.InUse())
		}
		look(t, server)
		if !short {
			require.EqualValues(t, 1<<20, ringOf(server))
			continue
		}
		require.Eventually(t, func() bool { return ringOf(server) == DefaultFirstRing }, patience, time.Millisecond)
		require.Eventually(t, func() bool { return serverBudget.InUse() < 1<<20 }, patience, time.Millisecond)

		// What grows now finds no memory until there is some.
		serverBudget.SetLimit(serverBudget.InUse())
		sent := make(chan error, 1)
		data := make([]byte, 900<<10)
		go func() { _, err := client.Write(data); sent <- err }()
		require.Eventually(t, func() bool {
			server.e.mu.Lock()
			defer server.e.mu.Unlock()
			return server.e.memory.refused
		}, patience, time.Millisecond)
		serverBudget.SetLimit(1 << 30)
		for done := false; !done; {
			look(t, server)
			select {
			case err := <-sent:
				require.NoError(t, err, "the application is in no call")
				done = true
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// TestGrowthOnce: a ring that is being made is not asked for again, whatever is read meanwhile.
func TestGrowthOnce(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	e := server.e
	require.Eventually(t, func() bool { // it has made the first places
		e.mu.Lock()
		defer e.mu.Unlock()
		return !e.work.running && !e.work.any()
	}, patience, time.Millisecond)
	e.mu.Lock()
	e.work.running = true // so that nobody makes it
	e.mu.Unlock()
	_, err := client.Write(make([]byte, DefaultFirstRing*3/4))
	require.NoError(t, err)
	buffered(t, server, DefaultFirstRing*3/4)
	e.mu.Lock()
	for range 3 {
		server.reclaim() // as a Read does
	}
	due := e.work.resize
	e.work.resize = nil // the worker has it, and registers
	server.reclaim()
	again := e.work.resize
	e.work.resize, e.work.running = due, false
	e.mu.Unlock()
	require.Len(t, due, 1)
	require.Empty(t, again)
	e.startWorker()
	require.Eventually(t, func() bool { return ringOf(server) == DefaultFirstRing*growthFactor }, patience, time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	require.LessOrEqual(t, len(server.in.pieces), 2)
}

// TestPlacesWithoutMemory: a dial waits while the listener has no memory for its place, and
// goes on when there is some, though no stream is released for it.
func TestPlacesWithoutMemory(t *testing.T) {
	b := newBed(t, Config{})
	b.l.cfg.Budget = budgetOf(2 << 20)
	b.l.cfg.Shrink = 50 * time.Millisecond
	require.NoError(t, b.l.cfg.Budget.Take(2<<20, memory.ForStream)) // another link has it all
	ctx, cancel := context.WithCancel(b.ctx())
	defer cancel()
	waits := make(chan error, 1)
	go func() {
		_, err := b.links.Dial(ctx, Target{Dst: b.l.Addr()})
		waits <- err
	}()
	require.Eventually(t, func() bool { return b.l.shortages.Count() > 0 }, patience, time.Millisecond, "Accept is told")
	select {
	case err := <-waits:
		t.Fatalf("a dial does not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)
	done, before := make(chan *Stream), b.l.shortages.Count()
	go func() { done <- b.dial() }()
	require.Eventually(t, func() bool { return b.l.shortages.Count() > before }, patience, time.Millisecond, "the next dial does not come")
	b.l.cfg.Budget.Give(2 << 20)
	within(t, "a dial when there is memory again", func() {
		client := <-done
		defer client.Close()
		server := b.accept()
		defer server.Close()
		say(t, client, server)
	})
}

// TestNoMemoryToDial: a dialer without memory for the ring of a stream says so, and how much
// there may be.
func TestNoMemoryToDial(t *testing.T) {
	b := newBed(t, Config{})
	b.links.cfg.Budget = budgetOf(100)
	_, err := b.links.Dial(b.ctx(), Target{Dst: b.l.Addr()})
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.ErrorContains(t, err, "SetMemoryLimit")
	b.links.cfg.Budget.SetLimit(memory.ChunkSize)
	client, server := b.pair()
	say(t, client, server)
	require.False(t, errors.Is(server.e.err, verbs.ErrNoMemory))
}
