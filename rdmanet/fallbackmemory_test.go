package rdmanet

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFailureMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m failureMemory
		a := destination{addr: netip.MustParseAddrPort("10.0.0.1:80")}
		other := a
		other.device = "mlx5_0"
		require.NoError(t, m.recall(a))
		m.forget(a)
		m.remember(a, errFirst, 10*time.Second)
		require.Equal(t, errFirst, m.recall(a))
		require.NoError(t, m.recall(other), "another device is another destination")
		time.Sleep(10*time.Second - 1)
		require.Equal(t, errFirst, m.recall(a))
		time.Sleep(time.Nanosecond)
		require.NoError(t, m.recall(a))
		require.Empty(t, m.entries)

		// The last failure counts, and a success ends it.
		m.remember(a, errFirst, 10*time.Second)
		time.Sleep(9 * time.Second)
		m.remember(a, errSecond, 10*time.Second)
		time.Sleep(9 * time.Second)
		require.Equal(t, errSecond, m.recall(a))
		m.forget(a)
		require.NoError(t, m.recall(a))
		m.remember(a, errFirst, 0)
		require.NoError(t, m.recall(a))
		require.Zero(t, m.order.Len())
	})
}

// TestFailureMemoryIsBounded has the oldest forgotten first.
func TestFailureMemoryIsBounded(t *testing.T) {
	var m failureMemory
	at := func(n int) destination {
		return destination{addr: netip.AddrPortFrom(netip.IPv6Loopback(), uint16(n))}
	}
	for n := range maxRemembered + 10 {
		m.remember(at(n), errFirst, time.Hour)
	}
	require.Len(t, m.entries, maxRemembered)
	require.Equal(t, maxRemembered, m.order.Len())
	require.NoError(t, m.recall(at(9)))
	require.Error(t, m.recall(at(10)))
}
