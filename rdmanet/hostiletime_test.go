package rdmanet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// verdict is how long after a lie its connection may go on.
var verdict = slowly(100 * time.Millisecond)

// A stopwatch tells how long something took, but for the time that the machine had the
// whole process wait: a goroutine of the watch does nothing but sleep, and what it
// sleeps too long is not counted.
type stopwatch struct {
	began time.Time
	stop  chan struct{}
	lost  chan time.Duration
}

func startWatch() *stopwatch {
	const tick = time.Millisecond
	w := &stopwatch{time.Now(), make(chan struct{}), make(chan time.Duration, 1)}
	go func() {
		var lost time.Duration
		for {
			before := time.Now()
			select {
			case <-w.stop:
				w.lost <- lost
				return
			case <-time.After(tick):
				lost += max(0, time.Since(before)-2*tick)
			}
		}
	}()
	return w
}

func (w *stopwatch) took() time.Duration {
	close(w.stop)
	return time.Since(w.began) - <-w.lost
}

// requirePrompt has f tell a lie and say how long its connection went on. What takes its
// time by nature takes it each time, so the best of three counts.
func requirePrompt(t testing.TB, f func() time.Duration) {
	t.Helper()
	var took time.Duration
	for range 3 {
		if took = f(); took <= verdict {
			return
		}
		t.Logf("the connection went on for %v", took)
	}
	t.Errorf("the connection went on for %v after the lie, where %v are promised", took, verdict)
}

// TestHostileAsleep has a peer lie to an end that sleeps in Read: it wakes, and the
// connection is over.
func TestHostileAsleep(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		for name, tell := range map[string]func(p *wirePeer){
			"nothing in the immediate":    func(p *wirePeer) { p.bell(0) },
			"a kind of the future":        func(p *wirePeer) { p.bell(15 << 28) },
			"data longer than the credit": func(p *wirePeer) { p.data(p.victim.Size + 1) },
			"data of length zero":         func(p *wirePeer) { p.data(0) },
			"a ring that grows by itself": func(p *wirePeer) { p.grown(1) },
			"credit never earned": func(p *wirePeer) {
				p.credit(ring.Credit{Consumed: 1, Reposted: wireDepth, Size: wireRing})
			},
			"receives never posted": func(p *wirePeer) {
				p.credit(ring.Credit{Reposted: wireDepth + 100, Size: wireRing})
			},
			"a SEND": func(p *wirePeer) { p.send(make([]byte, sentLen+1)) },
		} {
			t.Run(name, func(t *testing.T) {
				requirePrompt(t, func() time.Duration {
					p, victim := acceptedVictim(t, fl, wireConfig{})
					done := make(chan error, 1)
					go func() {
						_, err := victim.Read(make([]byte, 1))
						done <- err
					}()
					require.Eventually(t, func() bool { return victim.Stats().Parks > 0 }, patience, time.Millisecond)
					watch := startWatch()
					tell(p)
					require.ErrorIs(t, <-done, ErrProtocol)
					p.cutOff()
					took := watch.took()
					requireClosed(t, victim)
					p.close()
					return took
				})
			})
		}
	})
}
