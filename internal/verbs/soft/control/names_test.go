//go:build linux && (amd64 || arm64)

package control

import (
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

func TestNameHeard(t *testing.T) {
	name := BoundName("t"+strconv.Itoa(os.Getpid()), "heard", 1)
	require.False(t, NameHeard(name))
	fd, err := HoldName(name)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.False(t, NameHeard(name))
	require.NoError(t, unix.Listen(fd, 0))
	require.True(t, NameHeard(name))
	require.True(t, NameHeard(name), "its backlog is full")
	require.NoError(t, unix.Shutdown(fd, unix.SHUT_RDWR))
	require.False(t, NameHeard(name))
}
