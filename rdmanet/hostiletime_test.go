package rdmanet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// verdict is how long after a lie its connection may go on, on a machine with nothing else
// to do.
var verdict = slowly(100 * time.Millisecond)

// TestHostileAsleep has a peer lie to an end that sleeps in Read: it wakes, and the
// connection is over.
func TestHostileAsleep(t *testing.T) {
	eachWireFlavour(t, func(t *testing.T, fl flavour) {
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
				fastest(t, 3, "the end of a lie", verdict, func() time.Duration {
					p, victim := acceptedVictim(t, fl, wireConfig{})
					done := make(chan error, 1)
					go func() {
						_, err := victim.Read(make([]byte, 1))
						done <- err
					}()
					require.Eventually(t, func() bool { return victim.Stats().Parks > 0 }, patience, time.Millisecond)
					told := time.Now()
					tell(p)
					require.ErrorIs(t, <-done, ErrProtocol)
					p.cutOff()
					took := time.Since(told)
					requireClosed(t, victim)
					p.close()
					return took
				})
			})
		}
	})
}
