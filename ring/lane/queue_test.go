package lane

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

// TestLines: what each message changes shares no cache line with another lane.
func TestLines(t *testing.T) {
	var q queue[*Stream]
	q.push(nil)
	assert.Zero(t, cap(q.items)*int(unsafe.Sizeof(q.items[0]))%cacheline.Size)
	s := countedSlots(t, 64, 64, 16)
	assert.Zero(t, cap(s.streams)*int(unsafe.Sizeof(s.streams[0]))%cacheline.Size)
	assert.Zero(t, unsafe.Sizeof(Stream{})%cacheline.Size)
}

func TestQueue(t *testing.T) {
	var q queue[*int]
	in, out := 0, 0
	for round := range 100 {
		for range round % 7 {
			v := in
			q.push(&v)
			in++
		}
		for range round % 5 {
			if q.len() > 0 {
				v := q.pop()
				require.Equal(t, out, *v)
				if out++; (in+out)%3 == 0 { // it goes back
					q.pushFirst(v)
					out--
				}
			}
		}
		require.Equal(t, in-out, q.len())
		require.Len(t, q.all(), q.len())
	}
	for q.len() > 1 {
		in--
		require.Equal(t, in, *q.popLast())
	}
	require.Equal(t, out, *q.popLast())
	assert.Zero(t, q.len())
	for _, v := range q.items[:cap(q.items)] {
		assert.Nil(t, v, "nothing is kept")
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for range 8 {
			q.push(nil)
		}
		for range 8 {
			q.pop()
		}
	}))
}

// TestQueueMoves: what a queue holds is moved seldom, also while it is always full.
func TestQueueMoves(t *testing.T) {
	for long := 1; long <= 1000; long++ {
		var q queue[int]
		for range long {
			q.push(0)
		}
		moved := 0
		for range 4 * long {
			q.pop()
			first := q.all()
			q.push(0)
			if len(first) > 0 && &first[0] != &q.all()[0] {
				moved += len(first)
			}
		}
		require.LessOrEqual(t, moved, 5*long)
		require.LessOrEqual(t, cap(q.items), max(4*long, firstItems))
	}
}
