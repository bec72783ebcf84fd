package link

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cacheline"
)

// TestLines: where a lane keeps the calls that wait shares no cache line with another lane.
func TestLines(t *testing.T) {
	client, _ := newBed(t, Config{}).pair()
	e := client.e
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Zero(t, cap(e.calls)*int(unsafe.Sizeof(e.calls[:1][0]))%cacheline.Size)
	require.Zero(t, cap(e.wakeups)*int(unsafe.Sizeof(e.wakeups[:1][0]))%cacheline.Size)
	require.Zero(t, cap(e.unused)*int(unsafe.Sizeof(e.unused[:1][0]))%cacheline.Size)
}
