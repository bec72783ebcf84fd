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
	require.Zero(t, cap(e.polling.calls)*int(unsafe.Sizeof(e.polling.calls[:1][0]))%cacheline.Size)
	require.Zero(t, cap(e.polling.wakeups)*int(unsafe.Sizeof(e.polling.wakeups[:1][0]))%cacheline.Size)
	require.Zero(t, cap(e.polling.unused)*int(unsafe.Sizeof(e.polling.unused[:1][0]))%cacheline.Size)
}
