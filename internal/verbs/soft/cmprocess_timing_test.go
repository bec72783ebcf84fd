//go:build timing && linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
)

// TestTimingProcessIsKilled: who is connected to a process that is killed, or waits for its
// answer, knows within 50 ms.
func TestTimingProcessIsKilled(t *testing.T) {
	c := startChild(t, "listen and hang", netip.AddrPort{})
	addr := netip.MustParseAddrPort(c.said())
	e := dialData(t, unbuilt(t, addr))
	e.next(driver.CMEstablished)
	waiting := dialTo(t, addr)
	require.Equal(t, "waiting", c.said())
	began := time.Now()
	c.kill()
	e.next(driver.CMDisconnected)
	waiting.next(driver.CMUnreachable)
	require.Less(t, time.Since(began), 50*time.Millisecond)
}
