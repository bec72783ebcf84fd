//go:build !race

// The race detector makes everything larger.

package rdmanet

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// idleHeap is what an end of an idle connection may have on the Go heap, in bytes.
const idleHeap = 1300

// TestIdleEndIsSmall bounds what an end that nobody is calling leaves on the heap, and
// sees that no goroutine belongs to it.
func TestIdleEndIsSmall(t *testing.T) {
	onSoftware(t)
	clients, servers := manyPairs(t, 4) // and with them what a process has once
	closeAll(t, clients, servers)
	used := func() (bytes, goroutines int) {
		runtime.GC()
		runtime.GC() // what pools had
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc), runtime.NumGoroutine()
	}
	bytes, goroutines := used()
	const n = 256
	clients, servers = manyPairs(t, n)
	for i, client := range clients {
		server := servers[i]
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		readFull(t, server, 1)
		_, err = server.Write([]byte("x"))
		require.NoError(t, err)
		readFull(t, client, 1)
	}
	// A goroutine waits for a moment whether the peer says more.
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		b, g := used()
		each, others := (b-bytes)/(2*n), float64(g-goroutines)/(2*n)
		if small := each <= idleHeap && others < 0.1; small || time.Now().After(end) {
			require.True(t, small, "%d bytes and %.2f goroutines an end", each, others)
			t.Logf("%d bytes and %.2f goroutines an end", each, others)
			break
		}
	}
	closeAll(t, clients, servers)
}

// TestSizesOfConn: there are many, and these are classes of Go's allocator.
func TestSizesOfConn(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Conn{}), uintptr(8))
	require.LessOrEqual(t, unsafe.Sizeof(stream{}), uintptr(112))
}
