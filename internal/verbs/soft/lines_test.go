//go:build linux && (amd64 || arm64)

package soft

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
	"github.com/rdmanet/go-rdmanet/internal/verbs/soft/shm"
)

// TestLines: two of what a poll or a post writes to, one behind the other in memory, share no cache line.
func TestLines(t *testing.T) {
	require.Zero(t, unsafe.Sizeof(shm.Inbox{})%cacheline.Size)
	require.Zero(t, unsafe.Sizeof(cq{})%cacheline.Size)
	require.Zero(t, unsafe.Sizeof(recvQueue{})%cacheline.Size)
}
