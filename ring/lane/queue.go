package lane

import (
	"math/bits"
	"slices"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

// firstItems is for how many a queue has room at first. Messages change it, and less would lie in one
// line with another lane's as a rule, which another processor uses.
const firstItems = cacheline.Size / (bits.UintSize / 8)

// queue is a first-in, first-out list. It allocates no more once it has room for twice as many as it ever
// holds, and keeps no reference to what was taken.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

// some reports whether there is anything, at less cost than len.
func (q *queue[T]) some() bool { return len(q.items) > 0 }

func (q *queue[T]) push(v T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // fewer are moved than were taken
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	if cap(q.items) == 0 {
		q.items = make([]T, 0, firstItems)
	}
	q.items = append(q.items, v)
}

// pushFirst adds v before all others.
func (q *queue[T]) pushFirst(v T) {
	if q.head == 0 {
		q.items = slices.Insert(q.items, 0, v)
		return
	}
	q.head--
	q.items[q.head] = v
}

// pop takes the first. There must be one.
func (q *queue[T]) pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// popLast takes the last. There must be one.
func (q *queue[T]) popLast() T {
	var none T
	last := len(q.items) - 1
	v := q.items[last]
	q.items[last] = none
	if q.items = q.items[:last]; q.head == last {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// all returns what is in q, until it is changed.
func (q *queue[T]) all() []T { return q.items[q.head:] }

func (q *queue[T]) clear() {
	clear(q.items)
	q.items, q.head = q.items[:0], 0
}
