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

// sendOne sends a byte, if the stream may.
func sendOne(t testing.TB, l *Lane, s *Stream) (m Message, ok bool) {
	_, b, ok, err := l.Data(s, 1, false)
	require.NoError(t, err)
	return Message{Bell: b}, ok
}

// returned has peer take in messages until it returns slots to l, and returns how many, and those
// messages that are left.
func returned(t testing.TB, l, peer *Lane, sent []Message) (n int, left []Message) {
	for i, m := range sent {
		deliver(t, peer, m, nil)
		if m, ok := peer.Next(); ok {
			deliver(t, l, m, nil)
			d, err := ParseDoorbell(m.Imm)
			require.NoError(t, err)
			return int(d.N), sent[i+1:]
		}
	}
	require.Fail(t, "nothing returned")
	return 0, nil
}

// TestSlotsToldInTurn: of many writers that wait for slots one after the other is told, those first that came
// first, as long as there are slots; who has found none is told first when there are.
func TestSlotsToldInTurn(t *testing.T) {
	pair, streams := openMany(t, 64, 90)
	l, peer := pair[0], pair[1]
	var sent []Message
	var waiting []*Stream
	for _, s := range streams {
		if m, ok := sendOne(t, l, s); ok {
			sent = append(sent, m)
		} else {
			waiting = append(waiting, s)
		}
	}
	require.Greater(t, len(waiting), l.slots.depth/2)
	waiting[3].waits = false // its writer has gone
	waiting = slices.Delete(waiting, 3, 4)
	var n int
	for range 2 {
		n, sent = returned(t, l, peer, sent)
		for _, s := range waiting[:n] {
			require.Equal(t, []*Stream{s}, writable(l))
			l.PassTurn(s)
			m, ok := sendOne(t, l, s)
			require.True(t, ok)
			sent = append(sent, m)
		}
		require.Equal(t, waiting[n:n+1], writable(l))
		l.PassTurn(waiting[n])
		for _, s := range waiting[:n+1] {
			_, ok := sendOne(t, l, s)
			require.False(t, ok, "they used all that came")
		}
		require.Empty(t, writable(l))
		waiting = append(waiting[n:], waiting[:n]...)
	}
	returned(t, l, peer, sent)
	require.False(t, l.Due(), "a return of its own goes before")
	for i, s := range waiting { // none of which writes
		told := writable(l)
		require.Equal(t, []*Stream{s}, told)
		if l.PassTurn(s); i%2 == 0 {
			l.PassTurn(s) // it has none any more
		}
	}
	require.Empty(t, writable(l))
}

// TestTurnsBegun: a return of many slots begins more turns than one.
func TestTurnsBegun(t *testing.T) {
	pair, streams := openMany(t, 256, 90)
	l, peer := pair[0], pair[1]
	var sent []Message
	for _, s := range streams {
		for m, ok := sendOne(t, l, s); ok; m, ok = sendOne(t, l, s) {
			sent = append(sent, m)
		}
	}
	n, _ := returned(t, l, peer, sent)
	require.Len(t, writable(l), n/turnSlots)
}

// TestTurnsPassOver: who has used up its share is not told of slots that others may use, and keeps its place.
func TestTurnsPassOver(t *testing.T) {
	pair, streams := openMany(t, 64, 40)
	l, peer := pair[0], pair[1]
	var sent []Message
	for _, s := range streams {
		for m, ok := sendOne(t, l, s); ok; m, ok = sendOne(t, l, s) {
			if sent = append(sent, m); s != streams[0] {
				break
			}
		}
	}
	n, sent := returned(t, l, peer, sent)
	require.GreaterOrEqual(t, int(l.slots.streams.At(streams[0].id)), l.slots.share())
	require.Positive(t, n)
	told := writable(l)
	require.Len(t, told, 1)
	require.NotContains(t, told, streams[0])
	require.True(t, streams[0].listed)
	for int(l.slots.streams.At(streams[0].id)) >= l.slots.share() {
		_, sent = returned(t, l, peer, sent)
	}
	for s := told[0]; s != streams[0]; s = told[0] {
		l.PassTurn(s)
		told = append(told[1:], writable(l)...)
		require.NotEmpty(t, told)
	}
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

// TestNoWriterIsForgotten: whatever told writers do, however late they pass their turns on, and however late
// messages come, none waits for slots when all have come.
func TestNoWriterIsForgotten(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		pair, streams := openMany(t, MinDepth, 90)
		var wires [2][]Message // to each end
		var told [2][]*Stream  // that have not passed a turn on
		write := func(from int, id ID) {
			for n := random.IntN(4); n > 0; n-- {
				m, ok := sendOne(t, pair[from], pair[from].table.At(id))
				if !ok {
					return
				}
				wires[1-from] = append(wires[1-from], m)
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
		pass := func() (some bool) {
			for i, l := range pair {
				told[i] = append(told[i], writable(l)...)
				if len(told[i]) == 0 {
					continue
				}
				some = true
				k := random.IntN(len(told[i]))
				s := told[i][k]
				told[i] = slices.Delete(told[i], k, k+1)
				if l.PassTurn(s); random.IntN(2) == 0 {
					write(i, s.ID())
				}
			}
			return some
		}
		for range 400 {
			for range random.IntN(8) {
				write(random.IntN(2), streams[random.IntN(len(streams))].ID())
			}
			for n := random.IntN(8); n > 0 && step(); n-- {
			}
			for n := random.IntN(8); n > 0 && pass(); n-- {
			}
		}
		for step() || pass() {
		}
		require.Zero(t, pair[0].waiting.len()+pair[1].waiting.len(), "seed %d", seed)
	}
}
