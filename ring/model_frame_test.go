package ring

import "github.com/stretchr/testify/require"

// What the model does otherwise on a connection with checksums. To its books of windows
// the bytes of a frame are the stream, as they are to Sender and Receiver.

// nextFrame is the frame that may be sent now, of at most n bytes of the stream.
func (e *end) nextFrame(n int) (Grant, []byte) {
	t := e.m.t
	g, payload := e.tx.NextFrame(n)
	if g.N == 0 {
		require.Zero(t, payload)
		return g, nil
	}
	require.LessOrEqual(t, payload, n)
	require.Equal(t, FrameLen(payload), g.N)
	for _, span := range g.Span[:g.Spans] {
		require.Zero(t, span.Off%FrameAlign, "a frame and what is left of it begin at whole places")
	}
	b := make([]byte, FrameHeaderLen+payload)
	e.fill(b[FrameHeaderLen:], e.framed.wrote)
	e.framed.wrote += uint64(payload)
	e.framed.sum = Checksum(e.framed.sum, b[FrameHeaderLen:])
	FrameHeader{uint32(payload), e.framed.sum}.Put(b)
	return g, b
}

// endImm is the doorbell that ends a stream.
func (e *end) endImm(k Kind) uint32 {
	if !e.m.checksums {
		return Doorbell{Kind: k}.Imm()
	}
	return Doorbell{Kind: k, Len: e.framed.sum & SumBits}.FramedImm()
}

func (e *end) parse(imm uint32) (Doorbell, error) {
	if !e.m.checksums {
		return ParseDoorbell(imm)
	}
	d, err := ParseFramedDoorbell(imm)
	if d.Kind == KindFIN || d.Kind == KindClose {
		e.framed.end = d.Len
	}
	return d, err
}

// consumeFrames reads at most n bytes of the stream, in one of the two ways that there are.
func (e *end) consumeFrames(n int, a, b Span) {
	t, f := e.m.t, &e.framed
	ring := e.mem[DataOffset:]
	in := func(s Span) []byte { return ring[s.Off:][:s.Len] }
	got := make([]byte, min(n, int(a.Len+b.Len)))
	used := 0
	if e.m.c.intn(2) == 0 {
		var err error
		n, used, err = f.reader.Read(got, in(a), in(b))
		require.NoError(t, err)
	} else if a.Len > 0 && len(got) > 0 {
		opened, err := f.reader.Open(in(a), in(b))
		require.NoError(t, err)
		e.give(opened)
		a, _ = e.rx.Readable()
		n = min(len(got), f.reader.Left(), int(a.Len))
		copy(got[:n], in(a))
		used = f.reader.Take(n)
	} else {
		n = 0
	}
	want := make([]byte, n)
	e.peer.fill(want, f.read)
	if string(want) != string(got[:n]) {
		require.Fail(t, "bytes are changed, lost or out of order", "offset %d, length %d", f.read, n)
	}
	f.read += uint64(n)
	e.give(used)
	e.settleCredit()
}

// give gives n bytes of the ring back.
func (e *end) give(n int) {
	a, b := e.rx.Readable()
	left := n
	for _, span := range []Span{a, b} {
		k := min(left, int(span.Len))
		clear(e.unread[span.Off:][:k])
		left -= k
	}
	require.NoError(e.m.t, e.rx.Consume(n))
	e.read += uint64(n)
	require.LessOrEqual(e.m.t, e.read, e.peer.wrote)
}
