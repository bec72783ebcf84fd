//go:build timing

package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimingGuardStream has a writer and a reader that are awake all the time, since
// nothing else goes on: see TestGuardStream.
func TestTimingGuardStream(t *testing.T) {
	guarded(t)
	for _, size := range streamSizes {
		t.Run(SizeName(size), func(t *testing.T) {
			from, to := connPair(t)
			countStream(t, from, to, size) // the ring grows
			for range 5 {
				require.Empty(t, countStream(t, from, to, size))
			}
		})
	}
}
