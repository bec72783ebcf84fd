//go:build linux && (amd64 || arm64)

package soft

import (
	"sync"
	"time"
)

// A timeoutList runs the functions that are not removed within a time that is the
// same for all. It has one timer, which is set for the oldest and left running
// when that is removed: where connections come one after the other, no timer is
// touched and the poller not disturbed.
type timeoutList struct {
	after time.Duration

	mu          sync.Mutex
	first, last *timeout // the oldest first
	timer       *time.Timer
	running     bool
}

type timeout struct {
	at         time.Time
	f          func()
	prev, next *timeout
	listed     bool
}

// add has f run unless the result is removed in time.
func (l *timeoutList) add(f func()) *timeout {
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
	t := &timeout{at: time.Now().Add(l.after), f: f, prev: l.last, listed: true}
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	return t
}

// remove may be called more than once, and after the function ran.
func (l *timeoutList) remove(t *timeout) {
	l.mu.Lock()
	l.unlist(t)
	l.mu.Unlock()
}

// unlist is remove with mu held.
func (l *timeoutList) unlist(t *timeout) {
	if !t.listed {
		return
	}
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next, t.listed = nil, nil, false
}

func (l *timeoutList) fire() {
	l.mu.Lock()
	now := time.Now()
	var due []func()
	for t := l.first; t != nil; t = l.first {
		if left := t.at.Sub(now); left > 0 {
			l.timer.Reset(left)
			break
		}
		l.unlist(t)
		due = append(due, t.f)
	}
	l.running = l.first != nil
	l.mu.Unlock()
	for _, f := range due {
		f()
	}
}
