package link

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
)

// TestBudgetOrder: growth fails first, then places in store, and only then new streams.
func TestBudgetOrder(t *testing.T) {
	b := NewBudget(1600)
	for _, u := range []struct {
		use use
		max int64
	}{{useGrowth, 1400}, {usePlace, 1500}, {useStream, 1600}} {
		for b.InUse() < u.max {
			require.NoError(t, b.take(1, u.use))
		}
		for v := u.use; v <= useGrowth; v++ {
			err := b.take(1, v)
			require.ErrorIs(t, err, verbs.ErrNoMemory)
			require.ErrorContains(t, err, "SetMemoryLimit")
		}
	}
	b.give(1600)
	require.Zero(t, b.InUse())
	b.SetLimit(math.MaxInt64)
	require.NoError(t, b.take(1<<40, useGrowth))
	b.SetLimit(1000)
	require.Error(t, b.take(1, useStream), "more is in use than the limit now is")
	var none *Budget
	require.NoError(t, none.take(1<<40, useGrowth))
	require.False(t, none.short())
}

// TestBudgetFailuresApart: a request that is too large does not have a small one beside it
// fail, for which there is memory.
func TestBudgetFailuresApart(t *testing.T) {
	b := NewBudget(1000)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if b.take(1001, useStream) == nil {
						t.Error("more than the limit was there")
						return
					}
				}
			}
		})
	}
	for range 200_000 {
		if err := b.take(500, useStream); err != nil {
			t.Error(err)
			break
		}
		b.give(500)
	}
	close(stop)
	wg.Wait()
	require.Zero(t, b.InUse())
}

// TestBudgetShort: memory is short for a while after a refusal, and while more is in use than
// growth may take.
func TestBudgetShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1000)
		require.False(t, b.short())
		require.Error(t, b.take(2000, useGrowth))
		require.True(t, b.short())
		time.Sleep(shortTime + time.Millisecond)
		require.False(t, b.short())
		require.NoError(t, b.take(900, useStream))
		require.True(t, b.short())
		b.SetLimit(2000)
		require.False(t, b.short())
	})
}
