//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"net/netip"
	"sync"
)

// A hostLimit is slots of which one host at the other end may have some only.
type hostLimit struct {
	all  slots
	most int // for each host

	mu    sync.Mutex
	hosts map[netip.Addr]*hostTurns
}

// hostTurns are those of one host.
type hostTurns struct {
	slots slots
	users int // that have a slot or wait
}

// takeUnless waits for a slot and says whether it got one before done was closed.
func (l *hostLimit) takeUnless(host netip.Addr, done <-chan struct{}) bool {
	l.mu.Lock()
	h := l.hosts[host]
	if h == nil {
		h = &hostTurns{slots: newSlots(l.most)}
		if l.hosts == nil {
			l.hosts = map[netip.Addr]*hostTurns{}
		}
		l.hosts[host] = h
	}
	h.users++
	l.mu.Unlock()

	if h.slots.takeUnless(done) {
		if l.all.takeUnless(done) {
			return true
		}
		h.slots.give()
	}
	l.leave(host, h)
	return false
}

// give ends what takeUnless began.
func (l *hostLimit) give(host netip.Addr) {
	l.all.give()
	l.mu.Lock()
	h := l.hosts[host]
	l.mu.Unlock()
	h.slots.give()
	l.leave(host, h)
}

func (l *hostLimit) leave(host netip.Addr, h *hostTurns) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(l.hosts, host)
	}
}
