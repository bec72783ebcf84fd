//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// atOnce counts how many are inside at a time.
type atOnce struct{ now, most atomic.Int32 }

func (a *atOnce) enter() {
	n := a.now.Add(1)
	for m := a.most.Load(); n > m && !a.most.CompareAndSwap(m, n); m = a.most.Load() {
	}
}

func (a *atOnce) leave() { a.now.Add(-1) }

// The jobs of a sequence run one at a time and in order, and those of others meanwhile, however many
// sequences have a job that waits.
func TestSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck, other sequence
		block := make(chan struct{})
		for range 1000 {
			new(sequence).run(func() { <-block })
		}
		stuck.run(func() { <-block })
		var got []int
		for i := range 100 {
			stuck.run(func() { got = append(got, i) })
		}
		ran := false
		other.run(func() { ran = true })
		synctest.Wait()
		require.True(t, ran, "behind another's job")
		require.Empty(t, got)
		close(block)
		synctest.Wait()
		require.Len(t, got, 100)
		for i, n := range got {
			require.Equal(t, i, n)
		}
	})
}

// A crowd of sequences, under the race detector: none loses a job or its order.
func TestSequencesTogether(t *testing.T) {
	var all sync.WaitGroup
	for range 50 {
		s := new(sequence)
		next := 0 // guarded by the sequence
		all.Go(func() {
			var done sync.WaitGroup
			for i := range 100 {
				done.Add(1)
				s.run(func() {
					defer done.Done()
					assert.Equal(t, i, next)
					next++
					if rand.IntN(20) == 0 {
						time.Sleep(time.Microsecond)
					}
				})
			}
			done.Wait()
			assert.Equal(t, 100, next)
		})
	}
	all.Wait()
}
