package lane

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An EventReadable comes once for all that has arrived before it is taken, in the order in which streams
// became readable, and before all others.
func TestReadableInOrder(t *testing.T) {
	pair := newPair(t, 3)
	var streams [3]*Stream
	for i := range streams {
		var err error
		streams[i], err = pair[0].Open(Ring{RKey: uint32(10 + i), Size: 4096}, uint16(100+i))
		require.NoError(t, err)
	}
	carry(t, pair)
	l := pair[1]
	for _, order := range [][]int{{0}, {2, 0, 1}, {1, 1, 0, 1, 2, 0}, {2, 2}, {0, 1, 2}} {
		var want []ID
		for i, k := range order {
			_, b, ok, err := pair[0].Data(streams[k], 1, false)
			require.NoError(t, err)
			require.True(t, ok)
			if i == 1 { // in the middle of it
				l.tell(Event{Kind: EventWant, Count: 1})
			}
			deliver(t, l, Message{Bell: b}, nil)
			if id := streams[k].ID(); !slices.Contains(want, id) {
				want = append(want, id)
			}
		}
		require.True(t, l.Happened())
		var got []ID
		others := 0
		for e, ok := l.Event(); ok; e, ok = l.Event() {
			if e.Kind == EventReadable {
				require.Zero(t, others, "it comes first")
				got = append(got, e.Stream.ID())
			} else {
				others++
			}
		}
		assert.Equal(t, want, got)
		assert.Equal(t, min(len(order)-1, 1), others)
		assert.False(t, l.Happened())
		assert.Nil(t, l.Readable())
	}
}

// openMany returns a pair of ends with so many receives, and the dialer's streams.
func openMany(t testing.TB, receives, n int) (pair [2]*Lane, streams []*Stream) {
	pair = newPairOf(t, receives, n)
	for range n {
		s, err := pair[0].Open(Ring{RKey: 2, Size: 4096}, 1)
		require.NoError(t, err)
		streams = append(streams, s)
	}
	carry(t, pair)
	return pair, streams
}

// writable returns the streams whose writers are told.
func writable(l *Lane) (told []*Stream) {
	for e, ok := l.Event(); ok; e, ok = l.Event() {
		if e.Kind == EventWritable {
			told = append(told, e.Stream)
		}
	}
	return told
}

// TestSlotsToldInTurn: of many writers that wait for slots a return wakes as many as it brings, those first
// that came first, and all others when more than half of the slots are free.
func TestSlotsToldInTurn(t *testing.T) {
	pair, streams := openMany(t, 64, 90)
	l, peer := pair[0], pair[1]
	send := func(s *Stream) (b Bell, ok bool) {
		_, b, ok, err := l.Data(s, 1, false)
		require.NoError(t, err)
		return b, ok
	}
	var sent []Bell
	var waiting []*Stream
	for _, s := range streams {
		if b, ok := send(s); ok {
			sent = append(sent, b)
		} else {
			waiting = append(waiting, s)
		}
	}
	require.Greater(t, len(waiting), l.slots.depth/2)
	returned := func() (n uint32) {
		for _, b := range sent {
			deliver(t, peer, Message{Bell: b}, nil)
			sent = sent[1:]
			if m, ok := peer.Next(); ok {
				deliver(t, l, m, nil)
				d, err := ParseDoorbell(m.Imm)
				require.NoError(t, err)
				return d.N
			}
		}
		require.Fail(t, "nothing returned")
		return 0
	}

	waiting[3].waits = false // its writer has gone
	waiting = slices.Delete(waiting, 3, 4)
	for range 3 {
		n := returned()
		require.Equal(t, waiting[:n], writable(l))
		for _, s := range waiting[:n] {
			b, ok := send(s)
			require.True(t, ok)
			sent = append(sent, b)
		}
		for _, s := range waiting[:n] {
			_, ok := send(s)
			require.False(t, ok, "they used all that came")
		}
		waiting = append(waiting[n:], waiting[:n]...)
	}
	var told []*Stream // none of which writes
	for l.slots.free <= l.slots.depth/2 {
		require.Less(t, len(told), len(waiting))
		returned()
		told = append(told, writable(l)...)
	}
	require.Equal(t, waiting, told)
}

// TestReturnSentTells: a writer that waits for a return to be sent, which goes first, is told when it is,
// though slots are few and the peer need not return any soon.
func TestReturnSentTells(t *testing.T) {
	pair, streams := openMany(t, 64, 8)
	for pair[0].slots.free > pair[0].slots.depth/2 {
		_, _, ok, err := pair[0].Data(streams[0], 1, false)
		require.NoError(t, err)
		require.True(t, ok)
	}
	for !pair[0].Due() {
		_, b, ok, err := pair[1].Data(pair[1].table.At(1), 1, false)
		require.NoError(t, err)
		require.True(t, ok)
		deliver(t, pair[0], Message{Bell: b}, nil)
	}
	_, _, ok, err := pair[0].Data(streams[1], 1, false)
	require.NoError(t, err)
	require.False(t, ok)
	require.Empty(t, writable(pair[0]))
	_, ok = pair[0].Next()
	require.True(t, ok)
	require.Equal(t, []*Stream{streams[1]}, writable(pair[0]))
}

// TestNoWriterIsForgotten: whatever told writers do, and however late messages come, none waits for slots
// when all have come.
func TestNoWriterIsForgotten(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		pair, streams := openMany(t, MinDepth, 90)
		var wires [2][]Message // to each end
		write := func(from int, id ID) {
			for n := random.IntN(4); n > 0; n-- {
				_, b, ok, err := pair[from].Data(pair[from].table.At(id), 1, false)
				require.NoError(t, err)
				if !ok {
					return
				}
				wires[1-from] = append(wires[1-from], Message{Bell: b})
			}
		}
		step := func() bool {
			for _, to := range random.Perm(2) {
				if len(wires[to]) > 0 {
					deliver(t, pair[to], wires[to][0], make([]byte, RecordLen))
					wires[to] = wires[to][1:]
					return true
				}
				if m, ok := pair[1-to].Next(); ok {
					wires[to] = append(wires[to], m)
					return true
				}
			}
			return false
		}
		for range 400 {
			for range random.IntN(8) {
				write(random.IntN(2), streams[random.IntN(len(streams))].ID())
			}
			for n := random.IntN(8); n > 0 && step(); n-- {
			}
			for i, l := range pair {
				for _, s := range writable(l) {
					write(i, s.ID())
				}
			}
		}
		for step() {
			writable(pair[0])
			writable(pair[1])
		}
		require.Zero(t, pair[0].waiting.len()+pair[1].waiting.len(), "seed %d", seed)
	}
}
