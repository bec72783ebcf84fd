package rdmanet

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memoryFalls waits until no more than n bytes of rings are in use, collecting
// garbage if that is what it takes.
func memoryFalls(t *testing.T, n int64, collect bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		if collect {
			runtime.GC()
		}
		return MemoryInUse() <= n
	}, patience, time.Millisecond)
}

// settled waits until what earlier tests closed is gone, so that memory can be counted.
func settled(t *testing.T) int64 {
	t.Helper()
	memoryFalls(t, 0, true)
	return MemoryInUse()
}

// torn waits until the verbs objects of c are destroyed.
func torn(t *testing.T, c *Conn) {
	t.Helper()
	within(t, patience, "the teardown", func() { <-c.done() })
}

// TestPeekOutlivesClose reads what was peeked at after a Close.
func TestPeekOutlivesClose(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		before := settled(t)
		client, server := fl.pair(t)
		_, err := server.Write([]byte("hello"))
		require.NoError(t, err)
		b, err := client.Peek(5)
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		torn(t, client)
		torn(t, server)
		require.Equal(t, "hello", string(b))
		require.Greater(t, MemoryInUse(), before, "the ring is still mapped")

		_, err = client.Discard(5)
		require.ErrorIs(t, err, net.ErrClosed)
		memoryFalls(t, before, false)
		_, err = client.Peek(5)
		require.ErrorIs(t, err, net.ErrClosed)
		require.Equal(t, before, MemoryInUse())
	})
}

// TestReserveOutlivesClose writes to reserved memory after a Close.
func TestReserveOutlivesClose(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		before := settled(t)
		client, server := fl.pair(t)
		synchronous := client.synchronous(t)
		b, err := client.Reserve(MaxReserve)
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		torn(t, client)
		torn(t, server)
		for i := range b {
			b[i] = 1
		}
		if !synchronous { // else it is memory of Go
			require.Greater(t, MemoryInUse(), before, "the block is still mapped")
		}
		require.ErrorIs(t, client.Commit(len(b)), net.ErrClosed)
		memoryFalls(t, before, false)
	})
}

// TestCollectedConnUnmaps forgets a closed Conn, and what was peeked at and
// reserved, without a word.
func TestCollectedConnUnmaps(t *testing.T) {
	before := settled(t)
	func() {
		client, server, err := dialPair(&Dialer{}, &ListenConfig{})
		require.NoError(t, err)
		_, err = server.Write([]byte("hello"))
		require.NoError(t, err)
		_, err = client.Peek(5)
		require.NoError(t, err)
		_, err = client.Reserve(10)
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		torn(t, client)
		torn(t, server)
		require.Greater(t, MemoryInUse(), before)
		runtime.KeepAlive(client) // up to here
	}()
	memoryFalls(t, before, true)
}

// TestPeekDuringClose has a Peek succeed as the connection is closed: its memory
// too goes when the Conn is collected.
func TestPeekDuringClose(t *testing.T) {
	before := settled(t)
	for range scale(1000) {
		client, server, err := dialPair(&Dialer{}, &ListenConfig{})
		require.NoError(t, err)
		_, err = server.Write([]byte("hello"))
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if b, err := client.Peek(5); err == nil && string(b) != "hello" {
				t.Errorf("peeked %q", b)
			}
		}()
		runtime.Gosched()
		require.NoError(t, client.Close())
		<-done
		require.NoError(t, server.Close())
	}
	memoryFalls(t, before, true)
}
