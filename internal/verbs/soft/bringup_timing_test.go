//go:build timing && linux && (amd64 || arm64)

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimingBringUpIsDone: the second of two QPs waits for its peer, for as long as that
// takes a machine with little to do.
func TestTimingBringUpIsDone(t *testing.T) {
	for range 50 {
		a, b := newSide(t, defaults()), newSide(t, defaults())
		a.bringUpTo(b.qp.QPN())
		b.bringUpTo(a.qp.QPN())
		require.NotNil(t, linkOf(b))
	}
}
