package link

import (
	"sync"
	"sync/atomic"
)

// laneLock is the lock of a lane. A sync.Mutex lets who has it take it again and again for a
// millisecond while others wait, as a stream does that is busy; so a holder can let those go first
// who wait already.
type laneLock struct {
	mu      sync.Mutex
	waiting atomic.Int32    // calls of Lock that wait
	passed  []chan struct{} // of holders that have let them go first; mu guards it
}

func (l *laneLock) Lock() {
	if l.tryLock() {
		return
	}
	l.waiting.Add(1)
	l.mu.Lock()
	l.waiting.Add(-1)
	for i, c := range l.passed {
		c <- struct{}{}
		l.passed[i] = nil
	}
	l.passed = l.passed[:0]
}

// tryLock takes a lock that nobody has, and reports whether that was so. It is small enough for the compiler
// to put it in the place of its call, which Lock is not.
func (l *laneLock) tryLock() bool { return l.mu.TryLock() }

func (l *laneLock) Unlock() { l.mu.Unlock() }

// contended reports whether somebody waits for the lock, whose holder asks.
func (l *laneLock) contended() bool { return l.waiting.Load() > 0 }

// pass unlocks, and returns when somebody has the lock who has waited for it. contended must
// have said that there is. The caller's channel holds one token.
func (l *laneLock) pass(mine chan struct{}) {
	l.passed = append(l.passed, mine)
	l.mu.Unlock()
	<-mine
}
