//go:build timing

package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimingIdle(t *testing.T) {
	testIdle(t, func() {
		before := cpuTime()
		time.Sleep(200 * time.Millisecond)
		require.Less(t, cpuTime()-before, 100*time.Millisecond, "of two goroutines that poll it would be 400")
	})
}
