package rdmanet

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLiteralAddresses: what stands for an address itself, without a Resolver's answer.
func TestLiteralAddresses(t *testing.T) {
	for _, tt := range []struct {
		network, address string
		want             []string
	}{
		{"rdma", "127.0.0.1:7", []string{"127.0.0.1:7"}},
		{"rdma", "[::1]:7", []string{"[::1]:7"}},
		{"rdma", "[::ffff:127.0.0.1]:7", []string{"127.0.0.1:7"}},
		{"rdma", "[::]:7", []string{"[::]:7", "0.0.0.0:7"}},
		{"rdma", "[::%lo]:7", []string{"[::%lo]:7", "0.0.0.0:7"}},
		{"rdma4", "[::]:7", []string{"0.0.0.0:7"}},
		{"tcp4", "[::%1]:7", []string{"0.0.0.0:7"}},
		{"rdma6", "[::]:7", []string{"[::]:7"}},
		{"tcp", "0.0.0.0:7", []string{"0.0.0.0:7"}},
		{"tcp", "[fe80::1%eth0]:7", []string{"[fe80::1%eth0]:7"}},
		{"tcp6", "127.0.0.1:7", nil},
		{"rdma4", "[::1]:7", nil},
	} {
		got, err := resolve(t.Context(), nil, tt.network, tt.address, anyToDial(tt.network))
		var want []netip.AddrPort
		for _, s := range tt.want {
			want = append(want, netip.MustParseAddrPort(s))
		}
		if want == nil {
			require.ErrorContains(t, err, "no suitable address", "%s %s", tt.network, tt.address)
			continue
		}
		require.NoError(t, err, "%s %s", tt.network, tt.address)
		require.Equal(t, want, got, "%s %s", tt.network, tt.address)
	}
}
