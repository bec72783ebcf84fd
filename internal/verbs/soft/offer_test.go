//go:build linux && (amd64 || arm64)

package soft

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNoProc: without /proc the error says what to mount.
func TestNoProc(t *testing.T) {
	_, err := os.Readlink("/nosuchproc/self/fd/14")
	require.EqualError(t, noProc(err), "readlink /nosuchproc/self/fd/14: no such file or directory (mount -t proc proc /proc)")
	require.ErrorIs(t, noProc(err), unix.ENOENT)
	require.NoError(t, noProc(nil))
	require.Equal(t, unix.EACCES, noProc(unix.EACCES))
}
