package rdmanet

import (
	"sync/atomic"
	"time"
)

// A spinLuck is what polling has lately come to in a process where more would poll than
// there are processors. With many connections, each used now and then, each would find out
// for itself that its peer sleeps, polling for long on a processor that the peer needs; so
// those that have nothing to show for polling try it ever less often. A conversation that
// has the processors for itself is left alone. The zero value is good luck.
type spinLuck struct {
	bad    atomic.Int32
	asked  atomic.Uint32
	turned atomic.Int64 // when somebody was turned away last, in time since epoch
}

const (
	// Each badLuck halves how often polling is tried, down to once in 2^maxBadLuck.
	badLuck    = 32
	maxBadLuck = 6
	// missWeighs is what a miss counts: it costs a processor more than a hit saves.
	missWeighs = 4
	// crowdLasts is how long it takes to forget that somebody was turned away.
	crowdLasts = 10 * time.Millisecond
)

// luck is that of this process.
var luck spinLuck

// try says whether to poll on suspicion now.
func (l *spinLuck) try() bool {
	halvings := min(l.bad.Load()/badLuck, maxBadLuck)
	return halvings == 0 || l.asked.Add(1)&(1<<halvings-1) == 0
}

// hit and miss may lose one of two that come at once: this is a guess in any case.
func (l *spinLuck) hit() {
	if bad := l.bad.Load(); bad > 0 {
		l.bad.CompareAndSwap(bad, bad-bad/16-1)
	}
}

func (l *spinLuck) miss() {
	bad := l.bad.Load()
	l.bad.CompareAndSwap(bad, min(bad+missWeighs, badLuck*(maxBadLuck+1)-1))
}

// turnAway: somebody could not poll, since as many do as there are processors.
func (l *spinLuck) turnAway() { l.turned.Store(int64(time.Since(epoch))) }

// crowded says that there is more to poll for than processors.
func (l *spinLuck) crowded() bool {
	turned := l.turned.Load()
	return turned != 0 && int64(time.Since(epoch))-turned < int64(crowdLasts)
}
