package lane

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newPair returns a dialer and a listener, with places granted.
func newPair(t testing.TB, places int) [2]*Lane { return newPairOf(t, 64, places) }

// newPairOf is newPair with so many receives.
func newPairOf(t testing.TB, receives, places int) (pair [2]*Lane) {
	for i := range pair {
		var err error
		pair[i], err = New(Config{Role: Role(i + 1), Epoch: 7, Streams: 100, Receives: receives, PeerReceives: receives, Places: max(16, receives/4)})
		require.NoError(t, err)
	}
	if places > 0 {
		require.NoError(t, pair[1].Grant(1, places, Ring{RKey: 1, Size: 4096}, 40000))
	}
	carry(t, pair)
	return pair
}

// deliver gives a message to an end, which posts its receive again.
func deliver(t testing.TB, to *Lane, m Message, b []byte) {
	if m.Record.Kind == 0 {
		b = nil
	} else if err := m.Record.Put(b); err != nil {
		t.Fatal(err)
	}
	if err := to.Arrive(m.Imm, b); err != nil {
		t.Fatal(err)
	}
	if err := to.Reposted(1); err != nil {
		t.Fatal(err)
	}
}

// carry sends what is due, until nothing is, and accepts what is opened.
func carry(t testing.TB, pair [2]*Lane) (events []Event) {
	var b [RecordLen]byte
	for moved := true; moved; {
		moved = false
		for i, l := range pair {
			for m, ok := l.Next(); ok; m, ok = l.Next() {
				deliver(t, pair[1-i], m, b[:])
				moved = true
			}
		}
		for _, l := range pair {
			for e, ok := l.Event(); ok; e, ok = l.Event() {
				if e.Kind == EventOpened {
					require.NoError(t, l.Accept(e.Stream))
					moved = true
				}
				events = append(events, e)
			}
		}
	}
	return events
}

// kindsOf returns the kinds of events.
func kindsOf(events []Event) (out []EventKind) {
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return out
}

func TestLaneMisuse(t *testing.T) {
	_, err := New(Config{})
	require.ErrorIs(t, err, ring.ErrConfig)
	_, err = New(Config{Role: RoleDialer})
	require.ErrorIs(t, err, ring.ErrConfig)

	pair := newPair(t, 0)
	d, l := pair[0], pair[1]
	good := Ring{Size: 4096}
	_, err = d.Open(good, 1)
	require.ErrorIs(t, err, ErrNoPlace)
	for _, tt := range []struct {
		first ID
		count int
		r     Ring
		port  uint16
	}{{0, 1, good, 9}, {1, 0, good, 9}, {1, 101, good, 9}, {100, 2, good, 9}, {101, 1, good, 9}, {1, 1, Ring{Size: 100}, 9}, {1, 1, good, 0}, {1, 2, good, 65535}} {
		require.ErrorIs(t, l.Grant(tt.first, tt.count, tt.r, tt.port), ring.ErrConfig, "%+v", tt)
	}
	require.ErrorIs(t, d.Grant(1, 1, good, 40000), ring.ErrConfig)
	require.NoError(t, l.Grant(5, 2, good, 40000))
	require.ErrorIs(t, l.Grant(6, 1, good, 40000), ring.ErrConfig, "the id is in use")
	carry(t, pair)
	_, err = l.Open(good, 1)
	require.ErrorIs(t, err, ring.ErrConfig)
	_, err = d.Open(Ring{}, 1)
	require.ErrorIs(t, err, ring.ErrConfig)
	s, err := d.Open(good, 0)
	require.NoError(t, err)
	assert.Equal(t, ID(5), s.ID())
	assert.EqualValues(t, 40000, s.Port(), "that of the place")
	assert.Equal(t, stateOpening, s.state())
	require.ErrorIs(t, d.Offer(s, good), ErrStream, "OPEN was not sent")
	carry(t, pair)
	assert.Equal(t, stateOpen, s.state())
	require.ErrorIs(t, d.Accept(s), ErrStream)
	require.ErrorIs(t, l.Refuse(l.table.At(5), CodeReset), ring.ErrConfig)
	require.ErrorIs(t, l.Refuse(l.table.At(5), CodePort), ErrStream, "it was accepted")
	require.NoError(t, d.CloseWrite(s))
	require.ErrorIs(t, d.CloseWrite(s), ErrStream)
	_, _, _, err = d.Data(s, 1, false)
	require.ErrorIs(t, err, ErrStream)
	l.GoAway()
	require.ErrorIs(t, l.Grant(7, 1, good, 40000), ErrGoingAway)
	carry(t, pair)
	_, err = d.Open(good, 1)
	require.ErrorIs(t, err, ErrGoingAway)
}

// A stream from its dial to the release of its id, as events tell it.
func TestLaneLife(t *testing.T) {
	pair := newPair(t, 1)
	d, l := pair[0], pair[1]
	s, err := d.Open(Ring{RKey: 2, Size: 4096}, 40001)
	require.NoError(t, err)
	_, _, ok, err := d.Data(s, 5, false)
	require.NoError(t, err)
	require.False(t, ok, "OPEN goes first")
	assert.Equal(t, []EventKind{EventWritable, EventOpened, EventAccepted}, kindsOf(carry(t, pair)))
	p, m, ok, err := d.Data(s, 5, false)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, Span{Ring{RKey: 1, Size: 4096}, 0, 5}, p)
	assert.Equal(t, Bell{0x40010005, true}, m)
	deliver(t, l, Message{Bell: m}, nil)
	peer := l.table.At(1)
	assert.EqualValues(t, 40001, peer.Port())
	assert.EqualValues(t, 5, peer.Receiver().Buffered())
	d.Close(s)
	assert.ElementsMatch(t, []EventKind{EventReadable, EventClosed, EventClosed, EventReleased}, kindsOf(carry(t, pair)))
	assert.Equal(t, stateClosed, s.state())
	assert.True(t, s.Quiet() && peer.Quiet() && peer.Ended() && !peer.Reset())
	assert.Zero(t, l.Streams())
	require.NoError(t, l.Consume(peer, 5), "what arrived can be read when the id is gone")
	require.NoError(t, l.Grant(1, 1, Ring{RKey: 3, Size: 256}, 40000))
	assert.Equal(t, []EventKind{EventPlaces}, kindsOf(carry(t, pair)))
}

// A move to a ring that this end is about to offer, and has not, breaks the stream and not the
// offer.
func TestLaneMoveBeforeOffer(t *testing.T) {
	pair := newPair(t, 1)
	_, err := pair[0].Open(Ring{RKey: 2, Size: 4096}, 1)
	require.NoError(t, err)
	carry(t, pair)
	l := pair[1]
	require.NoError(t, l.Offer(l.table.At(1), Ring{RKey: 3, Size: 256}))
	b := make([]byte, RecordLen)
	require.NoError(t, Record{Kind: KindMoved, Stream: 1, Epoch: 7, Number: l.got}.Put(b))
	require.NoError(t, l.Arrive(Doorbell{Type: TypeControl}.Imm(), b))
	e, ok := l.Event()
	require.True(t, ok)
	require.Equal(t, EventBroken, e.Kind)
	require.ErrorIs(t, e.Err, RuleMove)
	for m, ok := l.Next(); ok; m, ok = l.Next() {
		if m.Record.Kind != 0 {
			require.NoError(t, m.Record.Put(b))
		}
	}
}

func TestLaneReset(t *testing.T) {
	pair := newPair(t, 1)
	s, err := pair[0].Open(Ring{RKey: 2, Size: 4096}, 1)
	require.NoError(t, err)
	carry(t, pair)
	pair[1].Reset(pair[1].table.At(1), CodeNoMemory)
	events := carry(t, pair)
	require.ElementsMatch(t, []EventKind{EventReset, EventClosed, EventReleased}, kindsOf(events))
	assert.Equal(t, CodeNoMemory, events[0].Code)
	assert.True(t, s.Reset())
}

// A record with the epoch of another lane is a lie, whichever was drawn first.
func TestLaneEpoch(t *testing.T) {
	for _, epoch := range []uint32{6, 8} {
		pair := newPair(t, 0)
		b := make([]byte, RecordLen)
		require.NoError(t, Record{Kind: KindWant, Count: 1, Epoch: epoch}.Put(b))
		requireViolation(t, ProtocolError{RuleEpoch, 0, uint64(epoch), 7}, pair[0].Arrive(Doorbell{Type: TypeControl}.Imm(), b))
	}
}

func TestLaneWant(t *testing.T) {
	pair := newPair(t, 2)
	pair[0].Want(3)
	events := carry(t, pair)
	require.Equal(t, []EventKind{EventWant}, kindsOf(events))
	assert.EqualValues(t, 3, events[0].Count)
	pair[0].Want(2)
	pair[0].Want(20_000)
	wanted := 0
	for _, ev := range carry(t, pair) {
		wanted += int(ev.Count)
	}
	assert.Equal(t, 20_002, wanted, "each that waits is told once")
	pair[1].Recall(5)
	assert.Equal(t, 2, pair[1].Recalled(), "there are no more")
	require.ErrorIs(t, pair[1].KeptPlaces(), RuleRecall)
	assert.Equal(t, []EventKind{EventReleased, EventReleased}, kindsOf(carry(t, pair)))
	assert.Zero(t, pair[0].Streams()+pair[1].Streams())
	assert.Zero(t, pair[1].Recalled())
}

// A flood on one stream, at an end that takes nothing in, does not stop its neighbours.
func TestLaneFlood(t *testing.T) {
	pair := newPair(t, 3)
	var streams []*Stream
	for range 3 {
		s, err := pair[0].Open(Ring{RKey: 2, Size: 4096}, 1)
		require.NoError(t, err)
		streams = append(streams, s)
	}
	carry(t, pair)
	flood := func(s *Stream) (n int) {
		for {
			if _, _, ok, err := pair[0].Data(s, 1, true); err != nil || !ok {
				return n
			}
			n++
		}
	}
	assert.Greater(t, flood(streams[0]), 20)
	assert.Equal(t, 8, flood(streams[1]))
	assert.Equal(t, 8, flood(streams[2]))
	pair[0].Close(streams[1])
	_, ok := pair[0].Next()
	assert.True(t, ok, "records get through")
}

// settle sends what is due after data, and forgets the events.
func settle(t testing.TB, pair [2]*Lane) {
	for range 2 { // an answer may make another one due
		for i, l := range pair {
			for m, ok := l.Next(); ok; m, ok = l.Next() {
				deliver(t, pair[1-i], m, nil)
			}
			for _, ok := l.Event(); ok; _, ok = l.Event() {
			}
		}
	}
}

// TestLaneNoAllocation sends and reads without allocating.
func TestLaneNoAllocation(t *testing.T) {
	pair := newPair(t, 1)
	s, err := pair[0].Open(Ring{RKey: 2, Size: 4096}, 1)
	require.NoError(t, err)
	carry(t, pair)
	peer := pair[1].table.At(1)
	step := func() {
		p, m, ok, err := pair[0].Data(s, 1000, false)
		if err != nil || !ok {
			t.Fatal("no data", err)
		}
		deliver(t, pair[1], Message{Bell: m}, nil)
		if err := pair[1].Consume(peer, int(p.Len)); err != nil {
			t.Fatal(err)
		}
		settle(t, pair)
	}
	for range 100 {
		step()
	}
	assert.Zero(t, testing.AllocsPerRun(200, step))
}

// TestCutMessageSolicits: a message that the end of the ring cuts does not wake a peer that sleeps, as the rest
// does, if that follows for certain, and if it is not so much that the peer reads it while the rest is written.
func TestCutMessageSolicits(t *testing.T) {
	const size = 4 * MaxMessage
	for _, cut := range []int{bulk - 1, bulk} {
		for _, follows := range []bool{false, true} {
			pair := newPair(t, 0)
			require.NoError(t, pair[1].Grant(1, 1, Ring{RKey: 1, Size: size}, 40000))
			carry(t, pair)
			d, l := pair[0], pair[1]
			s, err := d.Open(Ring{Size: MinRing}, 0)
			require.NoError(t, err)
			carry(t, pair)
			send := func(n, want int) bool {
				p, b, ok, err := d.Data(s, n, follows)
				require.NoError(t, err)
				require.True(t, ok)
				require.EqualValues(t, want, p.Len)
				require.Equal(t, b.Solicited, d.Marked())
				deliver(t, l, Message{Bell: b}, nil)
				require.NoError(t, l.Consume(l.table.At(1), int(p.Len)))
				carry(t, pair)
				return b.Solicited
			}
			for at := 0; at < size-cut; {
				n := min(MaxMessage, size-cut-at)
				require.True(t, send(n, n), "it is whole")
				at += n
			}
			require.Equal(t, !follows || cut >= bulk, send(cut+1, cut), "%d bytes and one, follows: %v", cut, follows)
			require.True(t, send(1, 1))
		}
	}
}

func BenchmarkLaneData(b *testing.B) {
	pair := newPair(b, 1)
	s, err := pair[0].Open(Ring{RKey: 2, Size: 1 << 16}, 1)
	require.NoError(b, err)
	carry(b, pair)
	peer := pair[1].table.At(1)
	b.ReportAllocs()
	for b.Loop() {
		p, m, _, _ := pair[0].Data(s, 64, false)
		deliver(b, pair[1], Message{Bell: m}, nil)
		_ = pair[1].Consume(peer, int(p.Len))
		settle(b, pair)
	}
}
