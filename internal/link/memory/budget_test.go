package memory

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// budgetOf is a Budget of n bytes.
func budgetOf(n int64) *Budget { return NewBudget(func() int64 { return n }) }

// TestBudget: what is taken counts until it is given back, and the limit may change.
func TestBudget(t *testing.T) {
	b := budgetOf(100)
	require.NoError(t, b.Take(60, ForStream))
	require.NoError(t, b.Take(40, ForStream))
	require.ErrorIs(t, b.Take(1, ForStream), verbs.ErrNoMemory)
	b.Give(40)
	require.NoError(t, b.Take(40, ForStream))
	require.EqualValues(t, 100, b.SetLimit(50), "the limit before")
	require.ErrorIs(t, b.Take(0+1, ForStream), verbs.ErrNoMemory, "over a lowered limit")
	require.EqualValues(t, 50, b.SetLimit(-1), "a negative limit only asks")
	require.EqualValues(t, 50, b.SetLimit(math.MaxInt64))
	require.NoError(t, b.Take(math.MaxInt32, ForStream), "no limit")
	b.used.Store(math.MaxInt64 - 5)
	require.ErrorIs(t, b.Take(6, ForStream), verbs.ErrNoMemory, "the sum must not overflow")
}

// TestBudgetOrder: growth fails first, then places in store, and only then new streams.
func TestBudgetOrder(t *testing.T) {
	b := budgetOf(1600)
	for _, u := range []struct {
		use Use
		max int64
	}{{ForGrowth, 1400}, {ForPlace, 1500}, {ForStream, 1600}} {
		for b.InUse() < u.max {
			require.NoError(t, b.Take(1, u.use))
		}
		for v := u.use; v <= ForGrowth; v++ {
			err := b.Take(1, v)
			require.ErrorIs(t, err, verbs.ErrNoMemory)
			require.ErrorContains(t, err, "SetMemoryLimit")
		}
	}
	b.Give(1600)
	require.Zero(t, b.InUse())
	b.SetLimit(math.MaxInt64)
	require.NoError(t, b.Take(1<<40, ForGrowth))
	b.SetLimit(1000)
	require.Error(t, b.Take(1, ForStream), "more is in use than the limit now is")
	none := Unbounded()
	require.NoError(t, none.Take(1<<40, ForGrowth))
	require.False(t, none.Short())
}

// TestBudgetFailuresApart: a request that is too large does not have a small one beside it
// fail, for which there is memory.
func TestBudgetFailuresApart(t *testing.T) {
	b := budgetOf(1000)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if b.Take(1001, ForStream) == nil {
						t.Error("more than the limit was there")
						return
					}
				}
			}
		})
	}
	for range 200_000 {
		if err := b.Take(500, ForStream); err != nil {
			t.Error(err)
			break
		}
		b.Give(500)
	}
	close(stop)
	wg.Wait()
	require.Zero(t, b.InUse())
}

// TestBudgetShort: memory is short for a while after a refusal, and while more is in use than
// growth may take.
func TestBudgetShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(1000)
		require.False(t, b.Short())
		require.Error(t, b.Take(2000, ForGrowth))
		require.True(t, b.Short())
		time.Sleep(shortTime + time.Millisecond)
		require.False(t, b.Short())
		require.NoError(t, b.Take(900, ForStream))
		require.True(t, b.Short())
		b.SetLimit(2000)
		require.False(t, b.Short())
	})
}

// TestBudgetIsExactUnderContention: of many who take at once as many get something as there is.
func TestBudgetIsExactUnderContention(t *testing.T) {
	b := budgetOf(1000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if b.Take(1, ForStream) == nil {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1000, granted)
	require.EqualValues(t, 1000, b.InUse())
}
