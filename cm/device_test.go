package cm

import (
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDevice does on a real device what TestSoft... do on the software one. The
// test bed with the kernel's soft-RoCE names the device and an address of it.
func TestDevice(t *testing.T) {
	const addrVar = "RDMANET_TEST_ADDR"
	device, listen := DefaultDevice(), os.Getenv(addrVar)
	if device == "" || listen == "" {
		t.Skipf("no device to test: set RDMANET_DEVICE=rxe0 and %s to an address of it, as 192.0.2.1:0", addrVar)
	}
	at, err := netip.ParseAddrPort(listen)
	require.NoError(t, err)
	addr := at.Addr().String()
	t.Run("connection", func(t *testing.T) { testConnection(t, addr, addr, device) })
	t.Run("wildcard", func(t *testing.T) { testConnection(t, "0.0.0.0", addr, device) })
	t.Run("IPv6 wildcard", func(t *testing.T) { testConnection(t, "::", addr, device) })
	t.Run("reject", func(t *testing.T) { testReject(t, addr, device) })
	t.Run("nobody listens", func(t *testing.T) { testNobodyListens(t, addr, device) })
}
