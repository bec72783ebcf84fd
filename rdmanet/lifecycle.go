package rdmanet

import (
	"sync"
	"sync/atomic"
)

// lifecycle serialises the reads and the writes of a Conn, counts the calls that
// are inside it, and lets Close end both. All of it is one word, so that an
// uncontended Read or Write pays two atomic operations for it:
//
//	bit  0      closed
//	bit  1      read lock
//	bit  2      write lock
//	bits 3-22   references: calls inside, a held lock counts as one
//	bits 23-42  goroutines that wait for the read lock
//	bits 43-62  goroutines that wait for the write lock
//
// After close no reference can be taken; whoever drops the last one destroys
// what the calls were using.
type lifecycle struct {
	word  atomic.Uint64
	semas atomic.Pointer[[2]semaphore] // by direction; nil until somebody waits for a lock
}

const (
	lifeClosed   = 1 << 0
	lifeRLock    = 1 << 1
	lifeWLock    = 1 << 2
	lifeRef      = 1 << 3
	lifeManyRefs = 1 << 22 // the highest of the references
	lifeRefMask  = (1<<20 - 1) << 3
	lifeRWait    = 1 << 23
	lifeRWaitMsk = (1<<20 - 1) << 23
	lifeWWait    = 1 << 43
	lifeWWaitMsk = (1<<20 - 1) << 43
)

// direction is one half of a connection.
type direction uint8

const (
	dirRead direction = iota
	dirWrite
)

func (d direction) bits() (lock, wait, waitMask uint64) {
	if d == dirRead {
		return lifeRLock, lifeRWait, lifeRWaitMsk
	}
	return lifeWLock, lifeWWait, lifeWWaitMsk
}

// sema is what those who wait for the lock of a direction wait on.
func (l *lifecycle) sema(d direction) *semaphore {
	if l.semas.Load() == nil {
		l.semas.CompareAndSwap(nil, new([2]semaphore))
	}
	return &l.semas.Load()[d]
}

// isClosed reports whether close was called.
func (l *lifecycle) isClosed() bool { return l.word.Load()&lifeClosed != 0 }

// incref takes a reference; false after close. Pair with decref.
func (l *lifecycle) incref() bool {
	for {
		old := l.word.Load()
		if old&lifeClosed != 0 || old&lifeRefMask == lifeRefMask {
			return false
		}
		if l.word.CompareAndSwap(old, old+lifeRef) {
			return true
		}
	}
}

// decref drops a reference and reports whether it was the last one after close.
func (l *lifecycle) decref() (last bool) {
	w := l.word.Add(^uint64(lifeRef - 1))
	return w&(lifeClosed|lifeRefMask) == lifeClosed
}

// tryLock is lock for a caller that nobody is in the way of, and reports whether that was so. It and tryUnlock
// are small enough for the compiler to put them in the place of their calls.
func (l *lifecycle) tryLock(d direction) bool {
	old := l.word.Load()
	return old&(lifeClosed|lifeManyRefs|lifeRLock<<d) == 0 && l.word.CompareAndSwap(old, old+lifeRLock<<d+lifeRef)
}

// lock takes the lock of a direction and a reference, waiting for its holder;
// false after close. Pair with unlock.
func (l *lifecycle) lock(d direction) bool {
	lock, wait, waitMask := d.bits()
	for {
		old := l.word.Load()
		if old&lifeClosed != 0 {
			return false
		}
		if old&lock == 0 {
			if old&lifeRefMask == lifeRefMask {
				return false
			}
			if l.word.CompareAndSwap(old, (old|lock)+lifeRef) {
				return true
			}
			continue
		}
		if old&waitMask == waitMask {
			return false
		}
		if l.word.CompareAndSwap(old, old+wait) {
			l.sema(d).acquire()
			// The waker took this goroutine out of the count.
		}
	}
}

// tryUnlock is unlock for a caller that nobody waits for, before close, and reports whether that was so.
func (l *lifecycle) tryUnlock(d direction) bool {
	old := l.word.Load()
	return old&(lifeClosed|lifeRWaitMsk|lifeWWaitMsk) == 0 && l.word.CompareAndSwap(old, old-lifeRLock<<d-lifeRef)
}

// unlock drops the lock of a direction and its reference, and reports whether that
// was the last one after close.
func (l *lifecycle) unlock(d direction) (last bool) {
	lock, wait, waitMask := d.bits()
	for {
		old := l.word.Load()
		next := (old &^ lock) - lifeRef
		waiting := old&waitMask != 0
		if waiting {
			next -= wait
		}
		if l.word.CompareAndSwap(old, next) {
			if waiting {
				l.sema(d).release(1)
			}
			return next&(lifeClosed|lifeRefMask) == lifeClosed
		}
	}
}

// isLeft reports whether close was called and no call has the lock of a direction, so that none ever will.
func (l *lifecycle) isLeft(d direction) bool {
	return l.word.Load()&(lifeClosed|lifeRLock<<d) == lifeClosed
}

// close marks the connection closed, takes a reference for the caller and wakes
// all who wait for a lock; false if it was closed before. Pair with decref.
func (l *lifecycle) close() bool {
	for {
		old := l.word.Load()
		if old&lifeClosed != 0 {
			return false
		}
		next := ((old | lifeClosed) + lifeRef) &^ (lifeRWaitMsk | lifeWWaitMsk)
		if l.word.CompareAndSwap(old, next) {
			if n := int(old & lifeRWaitMsk / lifeRWait); n > 0 {
				l.sema(dirRead).release(n)
			}
			if n := int(old & lifeWWaitMsk / lifeWWait); n > 0 {
				l.sema(dirWrite).release(n)
			}
			return true
		}
	}
}

// semaphore is the slow path of a contended lock.
type semaphore struct {
	mu   sync.Mutex
	cond sync.Cond
	n    int
}

func (s *semaphore) acquire() {
	s.mu.Lock()
	if s.cond.L == nil {
		s.cond.L = &s.mu
	}
	for s.n == 0 {
		s.cond.Wait()
	}
	s.n--
	s.mu.Unlock()
}

func (s *semaphore) release(n int) {
	s.mu.Lock()
	if s.cond.L == nil {
		s.cond.L = &s.mu
	}
	s.n += n
	s.mu.Unlock()
	if n == 1 {
		s.cond.Signal()
	} else {
		s.cond.Broadcast()
	}
}
