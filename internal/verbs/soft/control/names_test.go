//go:build linux && (amd64 || arm64)

package control

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsNameOf(t *testing.T) {
	src := netip.MustParseAddrPort("127.0.0.1:40000")
	for name, want := range map[string]bool{
		"@rdmanet/soft0/c/127.0.0.1/40000": true,
		"@rdmanet/soft0/40000/127.0.0.1":   true,
		"@rdmanet/soft0/40000/*4":          true,
		"@rdmanet/soft0/40000/*46":         true,
		"@rdmanet/soft0/40000/*6":          false,
		"@rdmanet/soft0/c/127.0.0.1/40001": false,
		"@rdmanet/soft1/c/127.0.0.1/40000": false,
		"":                                 false,
	} {
		require.Equal(t, want, IsNameOf(name, "soft0", src), name)
	}
}
