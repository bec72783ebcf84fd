package ring

import (
	"encoding/binary"

	"github.com/stretchr/testify/require"
)

// The model's transport, and the side of an end that takes in what it brings.

// place writes the next n messages on the wire to memory, ahead of their
// completions.
func (e *end) place(n int) {
	for ; n > 0 && e.placed < len(e.wire); n-- {
		for _, w := range e.wire[e.placed].writes {
			if w.off >= DataOffset {
				e.take(w.off-DataOffset, len(w.data))
			}
			copy(e.mem[w.off:], w.data)
		}
		e.placed++
	}
}

// take marks bytes of the ring as written.
func (e *end) take(off, n int) {
	require.LessOrEqual(e.m.t, off+n, int(e.rx.Size()), "nothing is written beyond the ring granted")
	for i := range e.unread[off : off+n] {
		if e.unread[off+i] {
			require.Fail(e.m.t, "an unread byte is overwritten", "at %d", off+i)
		}
		e.unread[off+i] = true
	}
}

// arrive completes the next n messages on the wire.
func (e *end) arrive(n int) {
	for ; n > 0 && len(e.wire) > 0; n-- {
		if e.placed == 0 {
			e.place(1)
		} else {
			e.m.seen.earlyPlacements++
		}
		require.Positive(e.m.t, e.recvs, "a receive is posted (RNR)")
		e.recvs--
		e.done = append(e.done, e.wire[0])
		e.wire, e.placed = e.wire[1:], e.placed-1
	}
}

// reap takes n completions and posts their receives again, a few together.
func (e *end) reap(n int) {
	t := e.m.t
	n = min(n, len(e.done))
	for _, msg := range e.done[:n] {
		d, err := e.parse(msg.imm)
		require.NoError(t, err)
		switch d.Kind {
		case KindData:
			require.NoError(t, e.rx.Data(d))
		case KindCredit:
			c := e.readCreditBlock()
			if c != msg.credit {
				e.m.seen.newerBlocks++
			}
			e.takeCredit(c)
		}
	}
	e.done = e.done[n:]
	e.reaped += uint64(n)
	if e.held += n; e.held >= MaxHeld || e.m.c.intn(4) == 0 {
		e.recvs += e.held
		e.rx.Reposted(uint32(e.held))
		e.held = 0
	}
	require.Equal(t, int(e.rx.depth), e.recvs+len(e.done)+e.held, "what was reaped is posted again")
	require.EqualValues(t, e.peer.origin.bytes+e.read, e.rx.ConsumedBytes())
	e.settleCredit()
}

// readCreditBlock reads the two halves of the block, between which the peer may
// write another credit.
func (e *end) readCreditBlock() Credit {
	half := func(i int) uint64 { return binary.LittleEndian.Uint64(e.mem[CreditOffset+8*i:]) }
	first := e.m.c.intn(2)
	var w [2]uint64
	w[first] = half(first)
	if e.m.c.intn(4) == 0 {
		e.place(1 + e.m.c.intn(8))
	}
	w[1-first] = half(1 - first)
	c := CreditFromWords(w[0], w[1])
	b := make([]byte, CreditLen)
	c.Put(b)
	parsed, err := ParseCredit(b)
	require.NoError(e.m.t, err)
	require.Equal(e.m.t, c, parsed)
	return c
}

func (e *end) takeCredit(c Credit) {
	free, slots := e.tx.Free(), e.tx.ControlSlots()
	require.NoError(e.m.t, e.tx.Update(c))
	require.GreaterOrEqual(e.m.t, e.tx.Free(), free, "a credit opens the window")
	require.GreaterOrEqual(e.m.t, e.tx.ControlSlots(), slots)
	require.Equal(e.m.t, c.Size, e.tx.Size())
	e.known = c
	checkSender(e.m.t, e.tx)
}

// consume reads at most n bytes, and compares them with what the peer wrote.
func (e *end) consume(n int) {
	t := e.m.t
	checkReceiver(t, e.rx)
	a, b := e.rx.Readable()
	if e.m.checksums {
		e.consumeFrames(n, a, b)
		return
	}
	taken := 0
	for _, span := range []Span{a, b} {
		k := min(n-taken, int(span.Len))
		want := make([]byte, k)
		e.peer.fill(want, e.read+uint64(taken))
		from := int(span.Off)
		if string(want) != string(e.mem[DataOffset+from:DataOffset+from+k]) {
			require.Fail(t, "bytes are changed, lost or out of order", "offset %d, length %d", e.read+uint64(taken), k)
		}
		clear(e.unread[from : from+k])
		taken += k
	}
	require.NoError(t, e.rx.Consume(taken))
	e.read += uint64(taken)
	require.LessOrEqual(t, e.read, e.peer.wrote)
	e.settleCredit()
}
