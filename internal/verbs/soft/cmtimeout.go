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
//
// The time is that of the clock, or with steps that in which this process ran: it goes by
// in so many steps, and one in which the process was stopped is one step however long.
type timeoutList struct {
	after time.Duration
	steps int // 0 for the clock's time

	mu          sync.Mutex
	first, last *timeout // the oldest first
	timer       *time.Timer
	running     bool
	past        time.Duration // that has gone by in steps
}

type timeout struct {
	at         time.Time     // without steps
	due        time.Duration // with steps: when so much has gone by
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
			l.timer = time.AfterFunc(l.step(), l.fire)
		} else {
			l.timer.Reset(l.step())
		}
	}
	t := &timeout{f: f, prev: l.last, listed: true}
	if l.steps == 0 {
		t.at = time.Now().Add(l.after)
	} else {
		// The step that goes on has perhaps just begun, and perhaps is over.
		t.due = l.past + l.after + l.step()
	}
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	return t
}

// step is how long the timer is set for.
func (l *timeoutList) step() time.Duration { return l.after / time.Duration(max(l.steps, 1)) }

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
	l.past += l.step()
	var due []func()
	for t := l.first; t != nil; t = l.first {
		if left := l.left(t, now); left > 0 {
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

// left is when to look at t again, 0 or less if it is due.
func (l *timeoutList) left(t *timeout, now time.Time) time.Duration {
	switch {
	case l.steps == 0:
		return t.at.Sub(now)
	case t.due > l.past:
		return l.step()
	}
	return 0
}
