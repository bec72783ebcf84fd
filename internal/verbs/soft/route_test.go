//go:build linux && (amd64 || arm64)

package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestRoute(t *testing.T) {
	for dst, src := range map[string]string{
		"127.0.0.1":        "127.0.0.1",
		"127.3.2.1":        "127.0.0.1",
		"::ffff:127.0.0.1": "127.0.0.1",
		"0.0.0.0":          "127.0.0.1",
		"::":               "::1",
	} {
		for _, dev := range []string{"", "soft0", "soft0-iwarp"} {
			r, err := softDriver{}.Route(dev, netip.MustParseAddr(dst))
			require.NoError(t, err)
			want := driver.Route{Device: dev, Src: netip.MustParseAddr(src), SameHost: true}
			if dev == "" {
				want.Device = "soft0"
			}
			require.Equal(t, want, r)
		}
	}
	_, err := softDriver{}.Route("", netip.MustParseAddr("203.0.113.77"))
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	_, err = softDriver{}.Route("mlx5_0", netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	_, err = softDriver{}.Route("", netip.Addr{})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}
