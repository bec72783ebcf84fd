package link

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// liveMRs is how many memory regions a device has.
func liveMRs(t testing.TB, d *faulty.Driver) (n int) {
	t.Helper()
	for _, kind := range strings.Split(d.Live(), ", ") {
		if rest, ok := strings.CutPrefix(kind, "MR: "); ok {
			_, err := fmt.Sscan(rest, &n)
			require.NoError(t, err)
		}
	}
	return n
}

// TestLaneCosts compares what is said of a lane with all that one end of it makes on a device: when
// it has come up, and with a stream that is busy.
func TestLaneCosts(t *testing.T) {
	needFailing(t)
	for _, way := range []struct {
		d     *faulty.Driver
		under string
		more  int // bytes that doorbells and READs take
	}{
		{failingAsynchronous, "asynchronous0", 0},
		{failingRemoteIWARP, "remote0-iwarp", defaultReceives*bellLen + lane.RecordLen},
	} {
		t.Run(way.under, func(t *testing.T) {
			nothingLeft(t, way.d, "", "after the tests before")
			l, err := Listen(Config{CM: cm.Options{Device: way.under}, Lanes: 1}, testAddr())
			require.NoError(t, err)
			defer l.Close()
			links, err := NewLinks(Config{CM: cm.Options{Device: way.d.Name()}, Lanes: 1})
			require.NoError(t, err)
			defer links.Close()
			b := &bed{t, l, links}
			client, server := b.pair()
			say(t, client, server)
			say(t, server, client)
			require.Equal(t, fmt.Sprintf("id: 1, PD: 1, MR: %d, channel: 1, CQ: %d, QP: %d, memory: %d", LaneMRs, LaneCQs, LaneQPs, LaneMRs), way.d.Live())
			p := client.e.p
			require.Equal(t, LaneMemory+way.more, p.remoteMR.Len()+p.localMR.Len())
			require.EqualValues(t, LaneRings, client.LaneStats().Memory)

			var most atomic.Int64
			way.d.OnAcquire(func(what string) error {
				if what == faulty.RegMR {
					most.Store(max(most.Load(), int64(liveMRs(t, way.d)+1)))
				}
				return nil
			})
			defer way.d.OnAcquire(nil)
			var held []*Buffer // as many as may still be sent
			for range maxSending {
				got, err := client.TakeBuffer()
				require.NoError(t, err)
				require.NotNil(t, got)
				held = append(held, got)
			}
			growHalfFull(t, server, client)
			enlarge(t, server, client)
			client.e.moreStaging(t)
			require.EqualValues(t, LaneMRsBusy, most.Load())
			for _, got := range held {
				got.Free()
			}
			within(t, "a conversation", func() { all(func() { sendBuffers(t, client, 200) }, func() { drain(t, server, 200*BufferSize) }) })
			require.EqualValues(t, LaneMRsBusy, most.Load())
		})
	}
}

// growHalfFull has the ring at an end go through all sizes below that of a chunk, none of which is full, and reads it
// empty.
func growHalfFull(t *testing.T, from, to *Stream) {
	t.Helper()
	n := 0
	write := func(k int) {
		n += k
		_, err := from.Write(make([]byte, k))
		require.NoError(t, err)
	}
	for ring := uint32(DefaultFirstRing); ring < memory.ChunkSize/chunkGrowth; {
		write(int(ring / 2))
		require.Eventually(t, func() bool {
			write(1) // which has it move to the ring that it was offered
			return ringOf(to) > ring
		}, patience, time.Millisecond)
		ring = ringOf(to)
	}
	require.EqualValues(t, memory.ChunkSize/chunkGrowth, ringOf(to))
	_, err := io.CopyN(io.Discard, to, int64(n))
	require.NoError(t, err)
}

// moreStaging has the lane have all the send memory that it may have, as a Write that finds too little does.
func (e *laneEnd) moreStaging(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	e.stagingDue()
	e.mu.Unlock()
	e.startWorker()
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.staging.memory) == mostStaging
	}, patience, time.Millisecond, "no more send memory")
}

// sendBuffers sends n Buffers one after the other.
func sendBuffers(t *testing.T, s *Stream, n int) {
	for range n {
		got, err := s.TakeBuffer()
		if got == nil {
			t.Error("no memory", err)
			return
		}
		_, err = s.Send(got, BufferSize)
		got.Free()
		if err != nil {
			t.Error(err)
			return
		}
	}
}

func drain(t *testing.T, s *Stream, n int64) {
	if got, err := io.CopyN(io.Discard, readerOnly{s}, n); err != nil {
		t.Error(errors.Join(err, fmt.Errorf("after %d bytes", got)))
	}
}

// TestLaneQueues reckons as mlx5's provider does: see docs/ARCHITECTURE.md.
func TestLaneQueues(t *testing.T) {
	to := func(n, of int) int { return (n + of - 1) / of * of }
	power := func(n int) int { return 1 << bits.Len(uint(n-1)) }
	const control, address, segment, basic, completion = 16, 16, 16, 64, 64
	request := to(control+address+to(4+maxInline, segment), basic)
	queues := power(sendDepth*request) + power(defaultReceives*segment) +
		completion*(power(defaultReceives+1)+power(sendDepth+1))
	require.Equal(t, LaneQueues, queues)
}
