package rdmanet

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAcceptQueue has several take what several push: each connection comes out once, and
// everybody hears of the end.
func TestAcceptQueue(t *testing.T) {
	const takers, each = 4, 10_000
	var q acceptQueue
	q.init()
	conns := make([]Conn, takers*each)
	counts := make([]map[*Conn]int, takers)
	var pushing, taking sync.WaitGroup
	for i := range takers {
		counts[i] = make(map[*Conn]int)
		taking.Go(func() {
			for c := q.next(); c != nil; c = q.next() {
				counts[i][c]++
			}
		})
		pushing.Go(func() {
			for j := range each {
				q.push(&conns[i*each+j])
			}
		})
	}
	pushing.Wait()
	q.close()
	taking.Wait()
	seen := 0
	for _, m := range counts {
		for _, n := range m {
			require.Equal(t, 1, n)
			seen++
		}
	}
	require.Equal(t, len(conns), seen)
	require.Zero(t, q.len())
	require.LessOrEqual(t, cap(q.conns), keptQueue, "an empty queue costs nothing")
}

func TestAcceptQueueKeepsOrder(t *testing.T) {
	var q acceptQueue
	q.init()
	var conns [1000]Conn
	out := 0
	for i := range conns {
		q.push(&conns[i])
		if i%3 != 0 {
			require.Same(t, &conns[out], q.next())
			out++
		}
	}
	require.Equal(t, len(conns)-out, q.len())
	q.close()
	for c := q.next(); c != nil; c = q.next() {
		require.Same(t, &conns[out], c)
		out++
	}
	require.Equal(t, len(conns), out)
	c, open := q.take()
	require.Nil(t, c)
	require.False(t, open)
}
