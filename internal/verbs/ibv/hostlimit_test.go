//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A host takes no more than its share, others get theirs, and nothing is kept of a host that
// nobody waits for.
func TestHostLimit(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	l := hostLimit[netip.Addr]{all: newSlots(3), most: 2}
	never, given := make(chan struct{}), make(chan struct{})
	close(given)
	require.True(t, l.takeUnless(a, never))
	require.True(t, l.takeUnless(a, never))
	require.False(t, l.takeUnless(a, given), "given up before")
	giveUp := make(chan struct{})
	waits := make(chan bool)
	go func() { waits <- l.takeUnless(a, giveUp) }()
	require.True(t, l.takeUnless(b, never), "another one's")
	go func() { waits <- l.takeUnless(b, giveUp) }() // there is none for anybody
	close(giveUp)
	require.False(t, <-waits)
	require.False(t, <-waits)
	go func() { waits <- l.takeUnless(a, never) }()
	l.give(a)
	require.True(t, <-waits, "its turn")
	l.give(a)
	l.give(a)
	l.give(b)
	require.Empty(t, l.hosts)
	require.Empty(t, l.all)
}

// Many come and go at once.
func TestHostLimitCrowd(t *testing.T) {
	l := hostLimit[netip.Addr]{all: newSlots(5), most: 2}
	hosts := [4]netip.Addr{}
	var in [len(hosts)]atomic.Int32
	var all atomic.Int32
	for i := range hosts {
		hosts[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	var crowd sync.WaitGroup
	for i := range 400 {
		crowd.Go(func() {
			done := make(chan struct{})
			timer := time.AfterFunc(time.Duration(i)*time.Microsecond, func() { close(done) })
			defer timer.Stop()
			if h := i % len(hosts); l.takeUnless(hosts[h], done) {
				if in[h].Add(1) > 2 || all.Add(1) > 5 {
					t.Error("too many")
				}
				time.Sleep(10 * time.Microsecond)
				in[h].Add(-1)
				all.Add(-1)
				l.give(hosts[h])
			}
		})
	}
	crowd.Wait()
	require.Empty(t, l.hosts)
	require.Empty(t, l.all)
}
