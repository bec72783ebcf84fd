package rdmanet

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

// enter and leave lock and unlock as Read and Write do.
func enter(l *lifecycle, d direction) bool        { return l.tryLock(d) || l.lock(d) }
func leave(l *lifecycle, d direction) (last bool) { return !l.tryUnlock(d) && l.unlock(d) }

// TestLifecycleTries: the short ways are those of a caller that nobody is in the way of.
func TestLifecycleTries(t *testing.T) {
	for _, d := range []direction{dirRead, dirWrite} {
		var l lifecycle
		require.True(t, l.tryLock(d))
		require.False(t, l.tryLock(d), "it is held")
		require.True(t, l.tryLock(1-d), "the other direction is not")
		require.True(t, l.tryUnlock(1-d))
		require.True(t, l.tryUnlock(d))
		require.Zero(t, l.word.Load())

		l.word.Store(lifeManyRefs)
		require.False(t, l.tryLock(d), "lock knows how many there may be")
		require.True(t, l.lock(d))
		require.False(t, l.unlock(d))
		l.word.Store(lifeRefMask)
		require.False(t, enter(&l, d), "there may be no more")

		l.word.Store(0)
		require.True(t, l.tryLock(d))
		require.True(t, l.close())
		require.False(t, l.decref())
		require.False(t, l.tryUnlock(d), "the last one is told")
		require.True(t, l.unlock(d))
		require.False(t, l.tryLock(d), "it is closed")
	}
}

// TestLifecycleTryUnlockWakes: who waits for the lock has it next.
func TestLifecycleTryUnlockWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []direction{dirRead, dirWrite} {
			var l lifecycle
			require.True(t, l.tryLock(d))
			had := make(chan bool, 1)
			go func() { had <- enter(&l, d) }()
			synctest.Wait()
			require.False(t, l.tryUnlock(d), "somebody waits")
			require.False(t, l.unlock(d))
			synctest.Wait()
			require.True(t, <-had)
			require.True(t, l.tryUnlock(d))
		}
	})
}

func TestLifecycleLockExcludes(t *testing.T) {
	for _, d := range []direction{dirRead, dirWrite} {
		var l lifecycle
		var inside atomic.Int32
		var count int // guarded by the lock; the race detector watches it
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 500 {
					if !enter(&l, d) {
						t.Error("lock refused on an open connection")
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two holders of one lock")
					}
					count++
					inside.Add(-1)
					if leave(&l, d) {
						t.Error("unlock of an open connection says last")
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, 4000, count)
		require.Zero(t, l.word.Load())
	}
}

func TestLifecycleDirectionsAreIndependent(t *testing.T) {
	var l lifecycle
	require.True(t, l.lock(dirRead))
	require.True(t, l.lock(dirWrite))
	require.False(t, l.unlock(dirRead))
	require.False(t, l.unlock(dirWrite))
}

func TestLifecycleCloseRefusesAndLastDestroys(t *testing.T) {
	var l lifecycle
	require.True(t, l.lock(dirRead))
	require.True(t, l.incref())
	require.True(t, l.close())
	require.False(t, l.close(), "second close")
	require.False(t, l.incref())
	require.False(t, l.lock(dirRead))
	require.False(t, l.lock(dirWrite))
	require.False(t, l.decref(), "reader and closer are still inside")
	require.False(t, l.decref(), "reader is still inside")
	require.True(t, l.unlock(dirRead), "the last one out destroys")
}

func TestLifecycleCloseWakesLockWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lifecycle
		require.True(t, l.lock(dirRead))
		require.True(t, l.lock(dirWrite))
		var refused atomic.Int32
		for range 3 {
			for _, d := range []direction{dirRead, dirWrite} {
				go func() {
					if !l.lock(d) {
						refused.Add(1)
					}
				}()
			}
		}
		synctest.Wait()
		require.Zero(t, refused.Load())
		require.True(t, l.close())
		synctest.Wait()
		require.EqualValues(t, 6, refused.Load())
		require.False(t, l.unlock(dirRead))
		require.False(t, l.unlock(dirWrite))
		require.True(t, l.decref())
	})
}

func TestLifecycleExactlyOneIsLast(t *testing.T) {
	for range 200 {
		var l lifecycle
		var last atomic.Int32
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				switch {
				case i == 5:
					if l.close() && l.decref() {
						last.Add(1)
					}
				case i%2 == 0:
					d := direction(i / 2 % 2)
					if enter(&l, d) && leave(&l, d) {
						last.Add(1)
					}
				default:
					if l.incref() && l.decref() {
						last.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, last.Load())
	}
}

// TestLifecycleLine: of two connections that are opened one after the other, the words that each call
// writes lie in two cache lines.
func TestLifecycleLine(t *testing.T) {
	require.Zero(t, unsafe.Sizeof(dropGuard{})%cacheline.Size)
}
