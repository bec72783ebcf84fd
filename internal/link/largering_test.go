package link

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
)

// largeRing gives one end of a stream a ring with a chunk of its own, which the other writes to.
func largeRing(t *testing.T) (client, server *Stream) {
	t.Helper()
	client, server = newBed(t, Config{}).pair()
	server.SetReadBuffer(memory.ChunkSize)
	require.Eventually(t, func() bool {
		say(t, client, server)
		server.e.mu.Lock()
		defer server.e.mu.Unlock()
		rx := server.st.Receiver()
		return rx.Ring().Size == memory.ChunkSize && !rx.Offering()
	}, patience, time.Millisecond)
	return client, server
}

// takeTurn has a Read of the stream be in progress, or end.
func (s *stream) takeTurn(taken bool) {
	s.e.mu.Lock()
	if taken {
		s.in.turn.begin(&s.e.mu)
	} else {
		s.endReading()
	}
	s.e.mu.Unlock()
	s.e.startWorker()
}

// latestRing returns the size of the ring that was offered to the peer last, to which it may have moved, when
// nothing is at work.
func (s *stream) latestRing(t *testing.T) (size uint32) {
	t.Helper()
	e := s.e
	require.Eventually(t, func() bool {
		e.pollNow()
		e.mu.Lock()
		defer e.mu.Unlock()
		rx := s.st.Receiver()
		if size = rx.Ring().Size; rx.Offering() {
			size = s.larger()
		}
		return !s.in.resizing && !e.work.any() && !e.work.running
	}, patience, time.Millisecond)
	return size
}

// TestLargeRingIsEarned: while a Read is in progress a large ring that fills up stays, until as much has come as
// a larger one holds. When the Read ends, and leaves it full, a larger one is offered; where there is room, it is
// when the next bytes arrive.
func TestLargeRingIsEarned(t *testing.T) {
	const full = memory.ChunkSize / 16 * 15
	for _, c := range []struct {
		earned bool
		most   int // unread bytes
	}{{false, full}, {false, memory.ChunkSize / 4 * 3}, {true, memory.ChunkSize / 4 * 3}} {
		earned, most := c.earned, c.most
		client, server := largeRing(t)
		for n := 0; earned && n < chunkGrowth*memory.ChunkSize; n += memory.ChunkSize / 4 {
			_, err := client.Write(make([]byte, memory.ChunkSize/4))
			require.NoError(t, err)
			_, err = io.ReadFull(server, make([]byte, memory.ChunkSize/4))
			require.NoError(t, err)
		}
		require.EqualValues(t, memory.ChunkSize, server.latestRing(t))
		server.takeTurn(true)
		_, err := client.Write(make([]byte, most))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			server.e.pollNow()
			server.e.mu.Lock()
			defer server.e.mu.Unlock()
			return server.st.Receiver().Buffered() == uint64(most)
		}, patience, time.Millisecond)
		if earned {
			require.EqualValues(t, chunkGrowth*memory.ChunkSize, server.latestRing(t))
		} else {
			require.EqualValues(t, memory.ChunkSize, server.latestRing(t))
		}
		server.takeTurn(false)
		if !earned && most < full {
			require.EqualValues(t, memory.ChunkSize, server.latestRing(t))
			_, err = client.Write([]byte{1})
			require.NoError(t, err)
			most++
		}
		require.EqualValues(t, chunkGrowth*memory.ChunkSize, server.latestRing(t))
		_, err = io.ReadFull(server, make([]byte, most))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
}

// TestUnreadBehindARead: an end whose ring has filled up during a Read takes as much behind it as one that is in
// no call.
func TestUnreadBehindARead(t *testing.T) {
	mostlyWaits(t)
	eachFlavour(t, func(t *testing.T, cfg Config) {
		if cfg.MaxRing != 0 {
			return
		}
		client, server := newBed(t, cfg).pair()
		server.takeTurn(true)
		p := make([]byte, 4<<20)
		for i := range p {
			p[i] = byte(i * 7)
		}
		wrote := make(chan error, 1)
		go func() {
			_, err := client.Write(p)
			wrote <- err
		}()
		require.Eventually(t, func() bool {
			server.e.pollNow()
			server.e.mu.Lock()
			defer server.e.mu.Unlock()
			rx := server.st.Receiver()
			return server.in.heldBack && rx.Buffered() >= memory.ChunkSize
		}, patience, time.Millisecond)
		server.takeTurn(false)
		within(t, "writing to who reads no more", func() { require.NoError(t, <-wrote) })
		got := make([]byte, len(p))
		_, err := io.ReadFull(server, got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(p, got))
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	})
}
