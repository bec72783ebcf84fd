package lane

import (
	"testing"

	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// streamByte is what the applications of a model with checksums write, byte by byte.
func streamByte(life uint16, at uint64) byte { return byte(at*7 + at>>8 + uint64(life)) }

// frame makes the next frame of what an application writes; nil without checksums.
func (m *model) frame(a *app, payload int) []byte {
	if !m.p.checksums {
		return nil
	}
	b := make([]byte, ring.FrameHeaderLen+payload)
	for i := range payload {
		b[ring.FrameHeaderLen+i] = streamByte(a.s.port, a.framed[0]+uint64(i))
	}
	a.framed[0] += uint64(payload)
	sum := ring.Checksum(a.s.Sum(), b[ring.FrameHeaderLen:])
	ring.FrameHeader{Len: uint32(payload), Sum: sum}.Put(b)
	a.s.Summed(sum)
	return b
}

// unframe takes what one Read does of the frames in p, and has p be what that used up.
func (m *model) unframe(a *app, r *memory, p *Span) error {
	if !m.p.checksums {
		return nil
	}
	got := make([]byte, m.p.bite)
	n, used, err := a.s.Frames().Read(got, r.data[p.Off:][:p.Len], nil)
	if err != nil {
		return err
	}
	for i, b := range got[:n] {
		if b != streamByte(a.s.port, a.framed[1]+uint64(i)) {
			return failf("a frame has other bytes than were sent")
		}
	}
	a.framed[1] += uint64(n)
	p.Len = uint32(used)
	return nil
}

// checkEnd sees that what was read is what the peer has announced.
func (m *model) checkEnd(a *app) error {
	if a.s.drops || a.partial {
		return nil
	}
	return a.s.CheckEnd()
}

// frameBreaches are breaches of what is there with checksums alone.
var frameBreaches = []breach{
	{name: "a bit of a frame changes", plan: "frames", want: ring.ErrChecksum.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if p.offset > 0 && len(p.frame) > 0 {
				p.frame[len(p.frame)-1] ^= 1
			}
			return false
		}},
	{name: "a frame is not written", plan: "frames", want: ring.ErrChecksum.Error(),
		packet: func(m *model, e int, p *packet) bool {
			p.frame = nil
			return false
		}},
	{name: "data is not as long as its frame", plan: "frames", want: RuleFrame.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if d, err := ParseDoorbell(p.Imm); err == nil && d.Type == TypeData {
				d.N--
				p.Imm = d.Imm()
			}
			return false
		}},
	{name: "FIN has the sum of another stream", plan: "frames", want: "the stream ended with",
		packet: func(m *model, e int, p *packet) bool {
			if e == 0 && p.Record.Kind == KindFIN {
				p.Record.Sum ^= 1
			}
			return false
		}},
	{name: "CLOSE has the sum of another stream", plan: "frames, asleep", want: "the stream ended with",
		packet: func(m *model, e int, p *packet) bool {
			if e == 0 && p.Record.Kind == KindClose {
				p.Record.Sum ^= 1
			}
			return false
		}},
	{name: "a sender sums what it does not send", plan: "frames and growth", want: ring.ErrChecksum.Error(),
		before: func(m *model, e int, at spot) {
			if at == atData && m.lanes[e].slots.pending > 0 {
				m.streams(e, func(s *Stream) { s.sums.sent++ })
			}
		}},
	{name: "the padding is not given back", plan: "frames", want: ring.ErrChecksum.Error(),
		before: func(m *model, e int, at spot) {
			if at == atRead {
				m.streams(e, func(s *Stream) {
					if s.sums.reader.Left() == 0 && s.rx.consumed%ring.FrameAlign == 0 && s.rx.consumed > 0 {
						s.rx.consumed -= ring.FrameAlign
					}
				})
			}
		}},
	{name: "sums on a lane without checksums", plan: "half-closes", want: RuleReserved.Error(),
		packet: func(m *model, e int, p *packet) bool {
			if p.Record.Kind == KindFIN {
				p.Record.Sum = 1
			}
			return false
		}},
}

func init() { breaches = append(breaches, frameBreaches...) }

// newSummedPair returns the ends of a lane with checksums, and of a stream between them.
func newSummedPair(t *testing.T) (pair [2]*Lane, s, peer *Stream) {
	t.Helper()
	for i := range pair {
		var err error
		pair[i], err = New(Config{Role: Role(i + 1), Epoch: 7, Streams: 10, Receives: 64, PeerReceives: 64, Places: 16, Checksums: true})
		require.NoError(t, err)
	}
	require.NoError(t, pair[1].Grant(1, 1, Ring{RKey: 1, Size: 256}, 40000))
	carry(t, pair)
	s, err := pair[0].Open(Ring{RKey: 2, Size: 256}, 0)
	require.NoError(t, err)
	carry(t, pair)
	return pair, s, pair[1].table.At(1)
}

// A stream of frames at both ends, as Data, Frames and the sums tell it.
func TestLaneFrames(t *testing.T) {
	pair, s, peer := newSummedPair(t)
	d, l := pair[0], pair[1]

	memory := make([]byte, 256)
	send := func(text string) {
		t.Helper()
		p, bell, ok, err := d.Data(s, len(text), false)
		require.NoError(t, err)
		require.True(t, ok)
		require.Zero(t, p.Len%ring.FrameAlign)
		n := s.Payload(p, len(text))
		require.Equal(t, len(text), n)
		sum := ring.Checksum(s.Sum(), []byte(text))
		ring.FrameHeader{Len: uint32(n), Sum: sum}.Put(memory[p.Off:])
		copy(memory[p.Off+ring.FrameHeaderLen:], text)
		s.Summed(sum)
		deliver(t, l, Message{Bell: bell}, nil)
	}
	read := func() string {
		t.Helper()
		p := peer.rx.Readable()
		b := make([]byte, 100)
		n, used, err := peer.Frames().Read(b, memory[p.Off:][:p.Len], nil)
		require.NoError(t, err)
		require.NoError(t, l.Consume(peer, used))
		return string(b[:n])
	}
	send("hello, lane\n")
	require.EqualValues(t, 32, peer.rx.Buffered())
	require.NoError(t, peer.CheckEnd(), "not at its end")
	require.Equal(t, "hello, lane\n", read())
	send("123")
	send("45678")
	require.Equal(t, "12345678", read(), "two frames")

	p, _, ok, err := d.Data(s, 1000, true)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 192, p.Len, "to the end of the ring")
	require.Equal(t, 184, s.Payload(p, 1000))
	_, _, ok, _ = d.Data(s, 0, true)
	require.False(t, ok, "nothing is no frame")

	// The end, without what Data was asked for last.
	s.tx.sent -= uint64(p.Len)
	d.Close(s)
	carry(t, pair)
	require.NoError(t, peer.CheckEnd())
	peer.sums.end++
	require.ErrorIs(t, peer.CheckEnd(), ring.ErrChecksum)
	peer.rx.received += 16
	require.NoError(t, peer.CheckEnd(), "not all was read")

	without := newPair(t, 1)
	s, err = without[0].Open(Ring{RKey: 2, Size: 256}, 0)
	require.NoError(t, err)
	assert.Nil(t, s.sums, "a stream without checksums has nothing of them")
	assert.Nil(t, s.Frames())
	assert.Zero(t, s.Sum())
	assert.NoError(t, s.CheckEnd())
}

// What arrives at an end that reads no more is in no sum, so that the peer's is nothing to compare with.
func TestLaneSumOfWhatIsDropped(t *testing.T) {
	pair, s, peer := newSummedPair(t)
	d, l := pair[0], pair[1]
	l.Close(peer)
	_, bell, ok, err := d.Data(s, 5, false)
	require.NoError(t, err)
	require.True(t, ok)
	s.Summed(ring.Checksum(s.Sum(), []byte("hello")))
	deliver(t, l, Message{Bell: bell}, nil)
	d.Close(s)
	carry(t, pair)
	require.True(t, peer.Ended())
	require.False(t, peer.EndedInOrder())
	require.NoError(t, peer.CheckEnd())
}
