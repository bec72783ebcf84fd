//go:build linux && (amd64 || arm64)

package soft

import (
	"container/list"
	"sync"
	"time"
)

// A timeoutList runs the functions that are not removed within a time that is the
// same for all. It has one timer, which is set for the oldest and left running
// when that is removed: where connections come one after the other, no timer is
// touched and the poller not disturbed.
type timeoutList struct {
	after time.Duration

	mu      sync.Mutex
	pending list.List // *timeout, the oldest first
	timer   *time.Timer
	running bool
}

type timeout struct {
	at time.Time
	f  func()
}

// add has f run unless the result is removed in time.
func (l *timeoutList) add(f func()) *list.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		l.running = true
		if l.timer == nil {
			l.timer = time.AfterFunc(l.after, l.fire)
		} else {
			l.timer.Reset(l.after)
		}
	}
	return l.pending.PushBack(&timeout{time.Now().Add(l.after), f})
}

// remove may be called more than once, and after the function ran.
func (l *timeoutList) remove(e *list.Element) {
	l.mu.Lock()
	l.pending.Remove(e)
	l.mu.Unlock()
}

func (l *timeoutList) fire() {
	l.mu.Lock()
	now := time.Now()
	var due []func()
	for e := l.pending.Front(); e != nil; e = l.pending.Front() {
		t := e.Value.(*timeout)
		if left := t.at.Sub(now); left > 0 {
			l.timer.Reset(left)
			break
		}
		l.pending.Remove(e)
		due = append(due, t.f)
	}
	l.running = l.pending.Len() > 0
	l.mu.Unlock()
	for _, f := range due {
		f()
	}
}
