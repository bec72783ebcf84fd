package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// period is a prime just above 1 MiB, so that neither a power of two nor a
// multiple of one, which is how buffers and rings are sized, lines up with it.
const period = 1<<20 + 7

// pattern is an endless random byte stream that repeats after period bytes. What
// comes back is compared with it at the position it must have.
type pattern struct{ bytes []byte }

// newPattern makes the stream readable in pieces of up to piece bytes.
func newPattern(piece int) pattern {
	b := make([]byte, period+piece)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b[:period])
	for n := period; n < len(b); {
		n += copy(b[n:], b[:period])
	}
	return pattern{b}
}

// at returns n bytes of the stream from position pos.
func (p pattern) at(pos int64, n int) []byte {
	i := int(pos % period)
	return p.bytes[i : i+n]
}

// check compares what came back at position pos.
func (p pattern) check(pos int64, got []byte) error {
	want := p.at(pos, len(got))
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	return fmt.Errorf("byte %d came back as %#02x and was sent as %#02x", pos+int64(i), got[i], want[i])
}
