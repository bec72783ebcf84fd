package leaktest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestDescriptorIsFound(t *testing.T) {
	before := Take()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	assert.Contains(t, before.wait(0, 3, nil), "socket:")
	require.NoError(t, l.Close())
	assert.Empty(t, before.Wait(nil))
}

func TestMappingIsFound(t *testing.T) {
	before := Take()
	fd, err := unix.MemfdCreate("left", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, 4096))
	data, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	assert.Equal(t, "1 mappings of memfd:left (deleted)\n", before.wait(0, 3, nil))
	require.NoError(t, unix.Munmap(data))
	assert.Empty(t, before.Wait(nil))
}
