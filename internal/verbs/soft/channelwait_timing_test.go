//go:build timing && linux && (amd64 || arm64)

package soft

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimingDeadlines: who waits on a channel is told of its deadline within 5 ms, also
// if it is woken for nothing all the time.
func TestTimingDeadlines(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, woken := range map[string]bool{"asleep": false, "woken for nothing": true} {
		t.Run(name, func(t *testing.T) {
			ctx, ch := newChannelOf(t)
			for range 10 {
				end := time.Now().Add(limit)
				require.NoError(t, ch.SetReadDeadline(end))
				require.ErrorIs(t, ch.WaitRead(func() bool {
					if woken {
						ch.signal()
					}
					return false
				}), os.ErrDeadlineExceeded)
				late := time.Since(end)
				require.GreaterOrEqual(t, late, time.Duration(0))
				require.Less(t, late, 5*time.Millisecond)
			}
			require.NoError(t, ch.Close())
			require.NoError(t, ctx.Close())
		})
	}
}
