package link

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/link/memory"
)

// fill writes until the peer has no room, and returns how much that was.
func fill(t *testing.T, s *Stream) (sent int) {
	t.Helper()
	defer func() { require.NoError(t, s.SetWriteDeadline(time.Time{})) }()
	for {
		require.NoError(t, s.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		n, err := s.Write(make([]byte, 256))
		if sent += n; err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			return sent
		}
	}
}

// TestTakeBuffer waits as Write does, and sends nothing.
func TestTakeBuffer(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		cfg.MaxRing = max(cfg.FirstRing, 1<<10)
		b := newBed(t, cfg)
		client, server := b.pair()
		take := func() error {
			got, err := client.TakeBuffer()
			if got != nil {
				got.Free()
			}
			return err
		}
		require.NoError(t, take())
		sent := 0
		require.Eventually(t, func() bool { // a deadline may have passed before there was no room
			sent += fill(t, client)
			require.NoError(t, client.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
			err := take()
			require.NoError(t, client.SetWriteDeadline(time.Time{}))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}, patience, time.Millisecond, "it does not wait for room")
		within(t, "TakeBuffer", func() {
			all(func() { require.NoError(t, take()) }, func() {
				require.Eventually(t, client.out.waiter.waiting, patience, time.Millisecond)
				_, err := io.ReadFull(server, make([]byte, sent))
				require.NoError(t, err)
			})
		})
		require.NoError(t, client.Close())
		require.Error(t, take())
	})
}

// TestBuffers sends a stream from Buffers, with a Write here and there: nothing is given out again that is still
// being sent, and of those that were given back there are few.
func TestBuffers(t *testing.T) {
	b := newBed(t, Config{CM: asynchronous()})
	client, server := b.pair()
	const rounds = 200
	want := make([]byte, 0, rounds*(BufferSize/2))
	lasts := map[memory.Piece]uint64{} // the last request that reads it
	go func() {
		for i := range rounds {
			got, err := client.TakeBuffer()
			if err != nil || got == nil {
				t.Errorf("no memory: %v", err)
				return
			}
			client.e.mu.Lock()
			if last, done := lasts[got.p], client.e.sq.completed; last > done {
				t.Errorf("request %d reads what was given out again, %d are completed", last, done)
			}
			client.e.mu.Unlock()
			n := 1 + i*977%BufferSize
			for j := range got.Bytes()[:n] {
				got.Bytes()[j] = byte(i)
			}
			if _, err := client.Send(got, n); err != nil {
				t.Error(err)
				return
			}
			lasts[got.p] = got.from.last
			got.Free()
			client.e.mu.Lock()
			if n := len(client.e.buffers.sending); n > maxSending {
				t.Errorf("%d are being sent", n)
			}
			client.e.mu.Unlock()
			if i%3 > 0 {
				continue
			}
			if _, err := client.Write([]byte{byte(i), byte(i)}); err != nil {
				t.Error(err)
				return
			}
		}
		_ = client.CloseWrite()
	}()
	for i := range rounds {
		n := 1 + i*977%BufferSize
		if i%3 == 0 {
			n += 2 // of the Write
		}
		for range n {
			want = append(want, byte(i))
		}
	}
	within(t, "the stream", func() {
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, len(want), len(got))
		require.True(t, string(want) == string(got))
	})
}

// bufferPairs returns n pairs, each with a Buffer of its client. Where the peer has to answer messages fewer
// are under way than tests of many need, and the test is skipped.
func (b *bed) bufferPairs(n int) (clients, servers []*Stream, buffers []*Buffer) {
	b.t.Helper()
	for range n {
		client, server := b.pair()
		got, err := client.TakeBuffer()
		require.NoError(b.t, err)
		require.NotNil(b.t, got)
		clients, servers, buffers = append(clients, client), append(servers, server), append(buffers, got)
	}
	if clients[0].e.sq.confirm != nil {
		b.t.Skip("fewer messages than that are under way where the peer has to answer them")
	}
	return clients, servers, buffers
}

// sendWhole sends all of b and frees it.
func sendWhole(s *Stream, b *Buffer) error {
	_, err := s.Send(b, BufferSize)
	b.Free()
	return err
}

// TestBuffersInFlight: however many streams of a lane send from Buffers, little of that is posted and not
// completed, and all of it arrives in the end.
func TestBuffersInFlight(t *testing.T) {
	const streams = 2 * maxInFlight / BufferSize
	b := newBed(t, Config{CM: asynchronous(), FirstRing: 2 * BufferSize, MaxRing: 2 * BufferSize, Lanes: 1})
	clients, servers, buffers := b.bufferPairs(streams)
	e := clients[0].e
	hold, letGo := holdSends(e)
	hold()
	sent := make(chan error, streams)
	for i, client := range clients {
		require.Same(t, e, client.e)
		go func() { sent <- sendWhole(client, buffers[i]) }()
	}
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.buffers.inFlight.bytes == maxInFlight && len(e.buffers.inFlight.turns.waiting) == streams-maxInFlight/BufferSize
	}, patience, time.Millisecond, "too much was sent, or too little")
	letGo()
	within(t, "the streams", func() {
		for range streams {
			require.NoError(t, <-sent)
		}
		for _, server := range servers {
			_, err := io.ReadFull(server, make([]byte, BufferSize))
			require.NoError(t, err)
		}
	})
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reapAndSettle()
		return e.buffers.inFlight.bytes == 0 && len(e.buffers.inFlight.posted) == 0
	}, patience, time.Millisecond, "what has completed still counts")
}

// TestBufferTurnOfFullRing: a stream that has its turn to send from a Buffer, and finds its peer's ring full,
// leaves the room to the next.
func TestBufferTurnOfFullRing(t *testing.T) {
	const filling = maxInFlight / BufferSize
	b := newBed(t, Config{CM: asynchronous(), FirstRing: BufferSize, MaxRing: BufferSize, Lanes: 1})
	clients, _, buffers := b.bufferPairs(filling + 2)
	e := clients[0].e
	full, next := clients[filling], clients[filling+1]
	_, err := full.Write(make([]byte, BufferSize/2))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reapAndSettle()
		return len(e.staging.entries) == 0
	}, patience, time.Millisecond, "what was written does not complete")
	left, letGo := meterSends(e)
	sent := make(chan error, len(clients))
	for i, client := range clients {
		go func() { sent <- sendWhole(client, buffers[i]) }()
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.buffers.inFlight.bytes == min(i+1, filling)*BufferSize && len(e.buffers.inFlight.turns.waiting) == max(i+1-filling, 0)
		}, patience, time.Millisecond, "too much was sent, or too little")
	}
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.buffers.inFlight.room() == 0 { // what completes may be another request
			left.Store(1)
			e.reapAndSettle()
		}
		return next.counts.sent > 0
	}, patience, time.Millisecond, "the next does not have the room that the first has left")
	letGo()
	within(t, "the others", func() {
		for range len(clients) - 1 {
			require.NoError(t, <-sent)
		}
	})
	require.NoError(t, full.Close())
	require.Error(t, <-sent)
}

// TestBufferOutlivesItsLane: the memory is the program's until Free, whatever becomes of the
// stream and the lane, and is charged until then.
func TestBufferOutlivesItsLane(t *testing.T) {
	budget := budgetOf(1 << 30)
	b := newBed(t, Config{CM: asynchronous(), Budget: budget})
	client, server := b.pair()
	got, err := client.TakeBuffer()
	require.NoError(t, err)
	client.e.fail(errGone)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	within(t, "the end of the lanes", func() { <-client.e.done; <-server.e.done })
	for i := range got.Bytes() {
		got.Bytes()[i] = 1
	}
	require.EqualValues(t, memory.ChunkSize, budget.InUse())
	_, err = client.Send(got, 1)
	require.Error(t, err)
	got.Free()
	require.Zero(t, budget.InUse())
}

// TestNoBuffer: where there is no memory Write has to do.
func TestNoBuffer(t *testing.T) {
	budget := budgetOf(1 << 30)
	b := newBed(t, Config{CM: asynchronous(), Budget: budget})
	client, server := b.pair()
	budget.SetLimit(1)
	got, err := client.TakeBuffer()
	require.NoError(t, err)
	require.Nil(t, got)
	say(t, client, server)
}

// TestBuffersGoBack: the memory of Buffers that nobody uses goes back although the lane rests, and at once
// where another lane finds too little.
func TestBuffersGoBack(t *testing.T) {
	for _, short := range []bool{false, true} {
		budget := budgetOf(1 << 30)
		cfg := Config{CM: asynchronous(), Shrink: 20 * time.Millisecond, Budget: budget, Idle: patience}
		if short {
			cfg.Shrink = time.Hour // it does not look
		}
		b := newBed(t, cfg)
		client, server := b.pair()
		var sent []*Buffer
		for range maxSending {
			got, err := client.TakeBuffer()
			require.NoError(t, err)
			require.NotNil(t, got)
			_, err = client.Send(got, 100)
			require.NoError(t, err)
			sent = append(sent, got)
		}
		_, err := io.ReadFull(server, make([]byte, maxSending*100))
		require.NoError(t, err)
		e := client.e
		for _, got := range sent {
			got.Free()
		}
		if !short {
			require.Eventually(t, func() bool { return e.buffers.slab.Registered() == 0 }, patience, time.Millisecond)
			continue
		}
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.reapAndSettle()
			return len(e.buffers.sending) == 0
		}, patience, time.Millisecond)
		require.NotZero(t, e.buffers.slab.Registered())
		budget.SetLimit(budget.InUse())
		other := memory.NewSlab(e.p.ctx, e.p.pd, budget, 0)
		p, err := other.Alloc(BufferSize, memory.ForStream)
		require.NoError(t, err)
		other.Free(p)
		require.NoError(t, other.Close())
	}
}
