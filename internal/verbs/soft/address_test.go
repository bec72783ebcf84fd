//go:build linux && (amd64 || arm64)

package soft

import (
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocalAddrsAreTheInterfaces(t *testing.T) {
	ifs, err := net.Interfaces()
	require.NoError(t, err)
	want := map[netip.Addr]struct{}{}
	for _, ifi := range ifs {
		addrs, err := ifi.Addrs()
		require.NoError(t, err)
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
			require.True(t, ok)
			ip = ip.Unmap()
			if ip.Is6() && ip.IsLinkLocalUnicast() {
				ip = ip.WithZone(strconv.Itoa(ifi.Index))
			}
			want[ip] = struct{}{}
		}
	}
	got, err := interfaceAddrs()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestIsLocal(t *testing.T) {
	for _, tt := range []struct {
		addr string
		want bool
	}{
		{"127.0.0.1", true},
		{"127.1.2.3", true},
		{"::1", true},
		{"::ffff:127.0.0.1", true},
		{"203.0.113.77", false},
		{"2001:db8::77", false},
		{"fe80::77", false},
		{"224.0.0.1", false},
	} {
		got, err := isLocal(canonical(netip.MustParseAddr(tt.addr)))
		require.NoError(t, err)
		require.Equal(t, tt.want, got, tt.addr)
	}
	addrs, err := interfaceAddrs()
	require.NoError(t, err)
	for a := range addrs {
		got, err := isLocal(a)
		require.NoError(t, err)
		require.True(t, got, a)
	}
}

func TestCanonical(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip("no interface lo")
	}
	index := strconv.Itoa(lo.Index)
	for in, want := range map[string]string{
		"192.0.2.1":        "192.0.2.1",
		"::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8::1%lo":   "2001:db8::1",
		"fe80::1%lo":       "fe80::1%" + index,
		"fe80::1%" + index: "fe80::1%" + index,
		"fe80::1":          "fe80::1",
	} {
		require.Equal(t, want, canonical(netip.MustParseAddr(in)).String(), in)
	}
	require.Equal(t, "fe80::1%lo", displayed(netip.MustParseAddr("fe80::1%"+index)).String())
	require.Equal(t, "192.0.2.1", displayed(netip.MustParseAddr("192.0.2.1")).String())
	require.False(t, canonical(netip.Addr{}).IsValid())
}

func TestEphemeralPortsYieldEachOnce(t *testing.T) {
	seen := map[uint16]int{}
	for p := range ephemeralPorts(hostNet{portLo: 100, portHi: 199}) {
		seen[p]++
	}
	require.Len(t, seen, 100)
	for p, n := range seen {
		require.Equal(t, 1, n, p)
		require.True(t, p >= 100 && p <= 199, p)
	}
	n := 0
	for range ephemeralPorts(hostNet{portLo: 65535, portHi: 65535}) {
		n++
	}
	require.Equal(t, 1, n)
}
