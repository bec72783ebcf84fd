package ring

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model simulates two ends with byte slices as registered memory, and the
// transport between them. Whoever makes the choices (a seeded generator, a fuzzer)
// decides when messages are written to memory, when they complete, when they are
// reaped, read and reported; the model keeps its own books of bytes, messages and
// receives, and checks the ring against them at every step.

// chooser makes the model's choices.
type chooser interface {
	intn(n int) int // from 0 to n-1
}

// message is a WRITE_WITH_IMM, with the plain WRITE that precedes it at a wrap.
type message struct {
	imm    uint32
	writes []write
	credit Credit // what a credit message said when it was sent
}

type write struct {
	off  int
	data []byte
}

// end is one end of the connection: its ring, and its view of the peer's.
type end struct {
	m    *model
	peer *end
	salt uint64
	tx   *Sender
	rx   *Receiver

	mem    []byte // credit block and ring, written by the transport
	unread []bool // for each byte of the ring: written, and not consumed

	wire   []message // on the way to this end, in order
	placed int       // how many of them are in memory already
	done   []message // completed, not reaped
	recvs  int       // receive WRs posted and not used
	held   int       // reaped and not posted again

	// The model's own books; bytes and messages count from the origin.
	origin   struct{ bytes, messages uint64 }
	wrote    uint64
	read     uint64
	messages uint64
	reaped   uint64
	ringEnd  uint32 // where this end wraps as a sender
	known    Credit // the last credit it took in
	finished bool   // it has sent FIN and Close

	framed struct { // with checksums only
		wrote, read uint64 // bytes of the stream, without what frames take
		sum         uint32
		reader      FrameReader
		end         uint32 // what the peer's FIN or Close said
	}
}

type model struct {
	t    testing.TB
	c    chooser
	ends [2]*end
	lazy bool // credits that are due may wait; data waits for them

	checksums bool // messages are frames

	small bool // messages are small, so that slots run out before bytes
	seen  coverage
}

// coverage counts what a run has exercised.
type coverage struct {
	byteBlocks, slotBlocks, wraps, growths, newerBlocks, earlyPlacements int
	lowWater                                                             int // fewest slots that a control message found
}

// endConfig is the geometry of one end's ring and where its counts start.
type endConfig struct {
	size, maxSize, depth uint32
	bytes                uint64
	messages             uint32
}

// newModel builds a connection; cfg[i] describes the ring of end i.
func newModel(t testing.TB, c chooser, cfg [2]endConfig) *model {
	m := &model{t: t, c: c}
	m.seen.lowWater = MaxDepth
	for i, own := range cfg {
		other := cfg[1-i]
		e := &end{m: m, salt: uint64(i + 1), recvs: int(own.depth), ringEnd: other.size}
		e.rx = mustReceiver(t, own.size, own.maxSize, own.depth, own.bytes, own.messages)
		e.tx = mustSender(t, other.size, other.maxSize, other.depth, other.bytes, other.messages)
		e.origin.bytes, e.origin.messages = other.bytes, uint64(other.messages)
		e.known = Credit{other.bytes, other.messages + other.depth, other.size}
		e.mem = make([]byte, DataOffset+int(own.maxSize))
		e.unread = make([]bool, own.maxSize)
		m.ends[i] = e
	}
	m.ends[0].peer, m.ends[1].peer = m.ends[1], m.ends[0]
	return m
}

// fill writes the stream of this end from offset off into b.
func (e *end) fill(b []byte, off uint64) {
	for i := range b {
		b[i] = byte((off + uint64(i) + e.salt<<40) * 0x9e3779b97f4a7c15 >> 56)
	}
}

// write sends one data message of at most n bytes, and reports whether it could.
func (e *end) write(n int) bool {
	t := e.m.t
	if e.finished || !e.settleCredit() {
		return false
	}
	g, least := e.tx.Next(n), 1
	var frame []byte
	if e.m.checksums {
		g, frame = e.nextFrame(n)
		n, least = math.MaxInt, FrameAlign
	}
	if g.N == 0 {
		require.True(t, e.tx.Free() < least || e.tx.Slots() == 0, "blocked by a window only")
		if e.tx.Free() < least {
			e.m.seen.byteBlocks++
		} else {
			e.m.seen.slotBlocks++
		}
		return false
	}
	require.LessOrEqual(t, g.N, n)
	outstanding := e.wrote + uint64(g.N) - (e.known.Consumed - e.origin.bytes)
	require.LessOrEqual(t, outstanding, uint64(e.known.Size), "outstanding bytes fit the advertised ring")
	slots := int32(e.known.Reposted - uint32(e.origin.messages+e.messages))
	require.Greater(t, slots, int32(ControlReserve), "data leaves the reserve alone")

	growing := e.known.Size != e.ringEnd
	require.Equal(t, g.Grown, growing && g.Span[0].Off == e.ringEnd, "grown is said at the old end and nowhere else")
	if g.Grown {
		e.ringEnd = e.known.Size
		e.m.seen.growths++
	}
	if growing {
		require.Equal(t, 1, g.Spans, "no straddling while a growth is pending")
	}
	msg := message{imm: g.Doorbell().Imm()}
	off := e.wrote
	for _, span := range g.Span[:g.Spans] {
		require.LessOrEqual(t, span.Off+span.Len, e.ringEnd)
		b := make([]byte, span.Len)
		if e.m.checksums {
			b = b[:copy(b, frame[off-e.wrote:])] // no padding
		} else {
			e.fill(b, off)
		}
		off += uint64(span.Len)
		msg.writes = append(msg.writes, write{DataOffset + int(span.Off), b})
	}
	require.Equal(t, e.wrote+uint64(g.N), off, "the spans are the message")
	if g.Spans == 2 {
		e.m.seen.wraps++
	}
	if e.m.c.intn(8) == 0 {
		e.reap(len(e.done)) // credits may come in between Next and Sent
	}
	e.tx.Sent(g)
	e.wrote = off
	e.post(msg)
	require.Equal(t, e.origin.bytes+e.wrote, e.tx.SentBytes())
	return true
}

// post puts a message on the wire.
func (e *end) post(msg message) {
	e.messages++
	require.LessOrEqual(e.m.t, int32(uint32(e.origin.messages+e.messages)-e.known.Reposted), int32(0),
		"messages outstanding fit the posted receives")
	e.peer.wire = append(e.peer.wire, msg)
}

// control sends a message without data, which has to find a slot.
func (e *end) control(msg message) {
	slots := e.tx.ControlSlots()
	e.m.seen.lowWater = min(e.m.seen.lowWater, slots)
	require.Positive(e.m.t, slots, "a control message finds a slot")
	e.tx.SentControl()
	e.post(msg)
}

// sendCredit reports what there is to report.
func (e *end) sendCredit() {
	t, c := e.m.t, e.rx.Credit()
	require.Equal(t, e.peer.origin.bytes+e.read, c.Consumed)
	require.Equal(t, uint32(e.peer.origin.messages+e.reaped)-uint32(e.held)+e.rx.depth, c.Reposted,
		"receives are posted again when reaped, read or not")
	require.Equal(t, e.rx.Size(), c.Size)
	b := make([]byte, CreditLen)
	c.Put(b)
	e.control(message{imm: Doorbell{Kind: KindCredit}.Imm(), writes: []write{{CreditOffset, b}}, credit: c})
	e.rx.CreditSent(c)
	require.False(t, e.rx.CreditPending())
}

// settleCredit sends a credit that is due, and reports whether none is left.
func (e *end) settleCredit() bool {
	if !e.rx.CreditDue() {
		return true
	}
	if e.m.lazy && e.m.c.intn(3) > 0 {
		return false
	}
	e.sendCredit()
	require.False(e.m.t, e.rx.CreditDue())
	return true
}

// grow grants a larger ring, or finds one on its way.
func (e *end) grow(size uint32) {
	if e.rx.Growing() {
		require.ErrorIs(e.m.t, e.rx.Grow(size), ErrGrowing)
		return
	}
	require.NoError(e.m.t, e.rx.Grow(size))
}

// finish sends the last messages of a stream.
func (e *end) finish() {
	if !e.finished && e.settleCredit() {
		e.control(message{imm: e.endImm(KindFIN)})
		e.control(message{imm: e.endImm(KindClose)})
		e.finished = true
	}
}

// settle lets everything in flight arrive, and credits that are due go out, until
// nothing moves. Then no sender may be blocked: for slots at all, and for bytes if
// the application reads.
func (m *model) settle(reads bool) {
	lazy := m.lazy
	m.lazy = false
	defer func() { m.lazy = lazy }()
	progress := func() (n uint64) {
		for _, e := range m.ends {
			n += e.messages + e.reaped + e.read
		}
		return n
	}
	for before := progress() - 1; before != progress(); {
		before = progress()
		for _, e := range m.ends {
			e.settleCredit()
			e.arrive(len(e.wire))
			e.reap(len(e.done))
			if reads {
				e.consume(e.rx.Buffered())
			}
		}
	}
	for _, e := range m.ends {
		require.Positive(m.t, e.tx.Slots(), "a sender is owed its slots")
		if reads {
			require.Greater(m.t, e.tx.Free(), int(e.ringEnd/2), "a sender is owed half the ring")
			require.Equal(m.t, e.wrote, e.peer.read, "everything written was read")
			require.Zero(m.t, e.rx.Buffered())
			if m.checksums && e.finished {
				require.Equal(m.t, e.framed.wrote, e.peer.framed.read)
				require.Equal(m.t, e.peer.framed.end, e.peer.framed.reader.Sum()&SumBits, "the stream is as long as FIN says")
			}
		}
	}
}
