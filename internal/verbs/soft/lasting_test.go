//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"
	"time"
)

// lasting has what a process keeps for its next dials outlive the test, however busy the
// machine is: lines, ports, and what waits for the peer to be done. All of it expires when
// the test ends. A listener's own lines end with it: see listenAt.
func lasting(t testing.TB) {
	t.Helper()
	for _, l := range []*timeoutList{&idleLines.late, &idlePorts.late, &lingering} {
		before := l.setAfter(time.Hour)
		t.Cleanup(func() {
			l.setAfter(before)
			l.expire()
		})
	}
}

// setAfter changes how long what comes from now on may take, and returns what it was.
func (l *timeoutList) setAfter(d time.Duration) (before time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.after = l.after, d
	return before
}

// expire has the time of all that is listed be over.
func (l *timeoutList) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := l.first; t != nil; t = t.next {
		t.at = time.Time{}
	}
	if l.timer != nil {
		l.timer.Reset(0)
	}
}
