//go:build linux && (amd64 || arm64) && !noverbs

package ibv

import (
	"net/netip"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/verbs"
)

func TestSockaddr(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7:4660":          "192.0.2.7:4660",
		"[::ffff:192.0.2.7]:4660": "192.0.2.7:4660", // IPv4 goes as IPv4
		"[2001:db8::1]:80":        "[2001:db8::1]:80",
		"0.0.0.0:0":               "0.0.0.0:0",
		"[::]:65535":              "[::]:65535",
		"[fe80::1%lo]:1":          "[fe80::1%lo]:1",
		"[fe80::1%424242]:1":      "[fe80::1%424242]:1", // an index without an interface
	} {
		var s sockaddr
		require.NoError(t, s.put(netip.MustParseAddrPort(in)), in)
		assert.Equal(t, want, s.get().String(), in)
	}
}

func TestSockaddrBytes(t *testing.T) {
	var s sockaddr
	require.NoError(t, s.put(netip.MustParseAddrPort("192.0.2.7:4660")))
	b := unsafe.Slice((*byte)(unsafe.Pointer(&s)), unsafe.Sizeof(s))
	assert.Equal(t, []byte{2, 0, 0x12, 0x34, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0}, b[:16])
	require.NoError(t, s.put(netip.MustParseAddrPort("[fe80::1%424242]:80")))
	assert.Equal(t, []byte{
		10, 0, 0, 80, 0, 0, 0, 0,
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
		0x32, 0x79, 6, 0,
	}, b[:28])
	require.NoError(t, s.put(netip.MustParseAddrPort("10.0.0.1:1")))
	assert.Equal(t, make([]byte, 12), b[16:28], "nothing is left of what was there")
}

func TestSockaddrInvalid(t *testing.T) {
	var s sockaddr
	assert.ErrorIs(t, s.put(netip.AddrPort{}), verbs.ErrInvalid)
	assert.ErrorIs(t, s.put(netip.MustParseAddrPort("[fe80::1%no-such-nic]:1")), verbs.ErrInvalid)
	assert.False(t, new(sockaddr).get().IsValid(), "a family that is no IP")
}
