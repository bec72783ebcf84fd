//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import "sync"

// A hostLimit is slots of which one destination, a host or a listener, may have some only.
type hostLimit[K comparable] struct {
	all  slots // nil: no bound
	most int   // for each destination

	mu    sync.Mutex
	hosts map[K]*hostTurns
}

// hostTurns are those of one destination.
type hostTurns struct {
	slots slots
	users int // that have a slot or wait
}

// takeUnless waits for a slot and reports whether it got one before done was closed.
func (l *hostLimit[K]) takeUnless(host K, done <-chan struct{}) bool {
	l.mu.Lock()
	h := l.hosts[host]
	if h == nil {
		h = &hostTurns{slots: newSlots(l.most)}
		if l.hosts == nil {
			l.hosts = map[K]*hostTurns{}
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
func (l *hostLimit[K]) give(host K) {
	l.all.give()
	l.mu.Lock()
	h := l.hosts[host]
	l.mu.Unlock()
	h.slots.give()
	l.leave(host, h)
}

func (l *hostLimit[K]) leave(host K, h *hostTurns) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(l.hosts, host)
	}
}
