package link

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTurn: one call at a time, in the order in which they came.
func TestTurn(t *testing.T) {
	var mu sync.Mutex
	var turn turn
	var order []int
	var all sync.WaitGroup
	mu.Lock()
	turn.begin(&mu)
	for i := range 5 {
		all.Go(func() {
			mu.Lock()
			turn.begin(&mu)
			order = append(order, i)
			mu.Unlock() // as a call does that waits
			mu.Lock()
			turn.end()
			mu.Unlock()
		})
		for turn.queue == nil || len(*turn.queue) <= i {
			mu.Unlock()
			mu.Lock()
		}
	}
	require.Empty(t, order)
	turn.end()
	mu.Unlock()
	all.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	require.False(t, turn.taken)
	require.Nil(t, turn.queue)
}
