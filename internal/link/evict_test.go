package link

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOnEvict: whoever wants to know is told of each dialer that gives way, once, and may ask the
// Listener about it.
func TestOnEvict(t *testing.T) {
	var l atomic.Pointer[Listener]
	var told atomic.Uint64
	b := newBed(t, Config{HandshakeTimeout: time.Hour, OnEvict: func() {
		told.Add(1)
		_ = l.Load().Requests()
		_ = l.Load().Lanes()
	}})
	l.Store(b.l)
	const silent = 100
	leave := b.silentDialers(silent)
	client, server := b.pair()
	say(t, client, server)
	require.Eventually(t, func() bool { // those who are left give way to nobody
		b.l.ups.mu.Lock()
		defer b.l.ups.mu.Unlock()
		return len(b.l.ups.waiting) == 0 && !b.l.ups.ticking && b.l.Requests().Evicted >= silent-maxBringUps
	}, patience, time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return len(b.l.Lanes()) == 1 }, patience, time.Millisecond, "all but that of the pair have ended")
	evicted := b.l.Requests().Evicted
	require.Eventually(t, func() bool { return told.Load() >= evicted }, patience, time.Millisecond)
	require.Equal(t, evicted, told.Load())
}
