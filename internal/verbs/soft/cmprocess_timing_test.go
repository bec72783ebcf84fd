//go:build timing && linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/stretchr/testify/require"
)

// TestTimingProcessIsKilled: who is connected to a process that is killed, or waits for its
// answer, knows within 50 ms.
func TestTimingProcessIsKilled(t *testing.T) {
	c := startChild(t, "listen and hang", netip.AddrPort{})
	addr := netip.MustParseAddrPort(c.said())
	e := dialData(t, unbuilt(t, addr))
	e.next(verbs.CMEstablished)
	waiting := dialTo(t, addr)
	require.Equal(t, "waiting", c.said())
	began := time.Now()
	c.kill()
	e.next(verbs.CMDisconnected)
	waiting.next(verbs.CMUnreachable)
	require.Less(t, time.Since(began), 50*time.Millisecond)
}
