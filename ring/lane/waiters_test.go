package lane

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// all returns them in order.
func (l *waiters) all() (all []Waiter) {
	for w := l.first; w != 0; w = l.of[w-1].after {
		all = append(all, w)
	}
	return all
}

// TestWaiters has it do what a slice does.
func TestWaiters(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var l waiters
	var want []Waiter
	for range 10_000 {
		w := Waiter(1 + rng.IntN(20))
		i := slices.Index(want, w)
		require.Equal(t, i >= 0, l.contains(w))
		switch {
		case i >= 0:
			l.remove(w)
			want = slices.Delete(want, i, i+1)
		case rng.IntN(2) == 0:
			l.push(w)
			want = append(want, w)
		default:
			l.remove(w) // which is not there
		}
		require.Equal(t, len(want) == 0, l.empty())
		require.True(t, slices.Equal(want, l.all()))
	}
	require.False(t, l.contains(Goroutine))
	l.remove(Goroutine)
	require.False(t, l.contains(0))
}
