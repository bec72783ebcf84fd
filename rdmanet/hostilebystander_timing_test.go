//go:build timing

package rdmanet

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimingBystanders has a connection move bytes beside peers that lie ten times in
// each 50 ms, and beside honest peers that do as much, by turns. It moves at least 0.9
// times as much beside the liars.
//
// The peers compute in the same process as the bystander, and connections cost, so what
// is compared is not the bystander alone: it would lose to honest peers as well.
func TestTimingBystanders(t *testing.T) {
	skipListed(t, TestHostileBystanders)
	onSoftware(t)
	const turns, each, visits, tries = 12, 50 * time.Millisecond, 10, 5
	for _, c := range companies() {
		t.Run(c.name, func(t *testing.T) {
			by := startTraveller(t)
			defer by.stop(t)
			l := flavour{}.newListener(t)
			// beside is the bystander's rate, in bytes a second, during a turn.
			beside := func(come func(*testing.T, *Listener)) float64 {
				began, before := time.Now(), by.moved.Load()
				for range visits {
					come(t, l)
				}
				for time.Since(began) < each {
					time.Sleep(time.Millisecond)
				}
				return float64(by.moved.Load()-before) / time.Since(began).Seconds()
			}
			var share float64
			for try := range tries { // what is slower by nature is so each time
				var shares []float64
				for range turns {
					honest := beside(c.honest)
					shares = append(shares, beside(c.lies)/honest)
				}
				slices.Sort(shares)
				share = (shares[turns/2-1] + shares[turns/2]) / 2
				t.Logf("try %d of at most %d: beside liars %.2f of what it moves beside honest peers (%.2f to %.2f)", try+1, tries, share, shares[turns/4], shares[turns-1-turns/4])
				if share >= 0.9 {
					return
				}
			}
			require.GreaterOrEqual(t, share, 0.9)
		})
	}
}
