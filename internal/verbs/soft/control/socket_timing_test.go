//go:build timing && linux && (amd64 || arm64)

package control

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimingSocketPeerThatDoesNotRead: a full socket holds its sender up for sendTimeout.
func TestTimingSocketPeerThatDoesNotRead(t *testing.T) {
	a, _ := newPair(t)
	began := time.Now()
	for a.Send(make([]byte, MaxMessage), nil) == nil {
	}
	took := time.Since(began)
	require.GreaterOrEqual(t, took, sendTimeout)
	require.Less(t, took, sendTimeout+100*time.Millisecond)
}
