//go:build linux && (amd64 || arm64)

package soft

import (
	"fmt"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// silentFor is how long a dialer may take to send its request while descriptors are short. One
// whose request was not read yet is not silent.
const silentFor = 250 * time.Millisecond

var _ driver.ListenHolder = (*cmID)(nil)

// Hold implements driver.ListenHolder. Dialers wait in the kernel's backlog meanwhile.
func (id *cmID) Hold(hold bool) {
	id.mu.Lock()
	l := id.listen
	listening := id.state == cmListening
	id.mu.Unlock()
	if !listening {
		return
	}
	if hold {
		l.evictOldest()
	}
	l.mu.Lock()
	l.held = hold
	l.room.Broadcast()
	l.mu.Unlock()
}

// Waits implements driver.ListenHolder.
func (id *cmID) Waits() bool {
	id.mu.Lock()
	sock, requested := id.sock, id.state == cmRequested
	id.mu.Unlock()
	return !requested || !sock.HungUp()
}

// OnLeave implements driver.ListenHolder.
func (id *cmID) OnLeave(f func()) (stop func()) {
	id.mu.Lock()
	sock, requested := id.sock, id.state == cmRequested
	id.mu.Unlock()
	if !requested {
		return func() {}
	}
	return sock.OnHangup(f)
}

// evictOldest drops the oldest half-open dialer if it has long been silent, and reports whether it
// did.
func (l *listener) evictOldest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := l.half.Front()
	return oldest != nil && time.Since(oldest.Value.(*halfOpen).since) >= silentFor && l.evictSilent()
}

// reportShortage tells the application that dialers wait for lack of descriptors or memory.
func (l *listener) reportShortage(err error) {
	l.id.events.Push(driver.CMEvent{Type: driver.CMConnectError, ID: l.id, Err: fmt.Errorf("dialers have to wait: %w", err)})
	l.id.events.Deliver()
}
