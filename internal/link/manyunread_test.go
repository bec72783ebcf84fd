package link

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/link/memory"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

// TestManyUnread: streams are written to before anybody reads, one after the other, each a third of its part of the
// memory. While there is plenty the last ring of one may be mostly empty, if the program reads; if it always were, the
// last streams would find none.
func TestManyUnread(t *testing.T) {
	const n, each = 20, 1 << 20
	for _, reads := range []bool{false, true} {
		b := newBed(t, Config{CM: cm.Options{Device: "soft0"}, Budget: budgetOf(64 << 20), Idle: patience})
		var clients, servers []*Stream
		sizes := map[uint32]int{}
		for range n {
			client, server := b.pair()
			clients, servers = append(clients, client), append(servers, server)
			if reads {
				say(t, client, server)
			}
			require.NoError(t, client.SetWriteDeadline(time.Now().Add(patience)))
			_, err := client.Write(make([]byte, each))
			require.NoError(t, err)
			sizes[server.latestRing(t)]++
		}
		require.Equal(t, reads, sizes[chunkGrowth*chunkGrowth*memory.ChunkSize] > 0, "reads: %v: %v", reads, sizes)
		for i := range n {
			_, err := io.ReadFull(servers[i], make([]byte, each))
			require.NoError(t, err)
			require.NoError(t, clients[i].Close())
			require.NoError(t, servers[i].Close())
		}
	}
}

// TestUnreadUpToTheLargestRing: however large a ring may become, a stream that nobody reads gets there by as many as may
// hold unread bytes.
func TestUnreadUpToTheLargestRing(t *testing.T) {
	for most := uint32(memory.ChunkSize); most <= lane.MaxRing; most *= 2 {
		client, server := newBed(t, Config{CM: cm.Options{Device: "soft0"}, MaxRing: most}).pair()
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(patience)))
		_, err := client.Write(make([]byte, most))
		require.NoError(t, err, "%d", most)
		require.NoError(t, client.Close())
		_, err = io.Copy(io.Discard, server)
		require.NoError(t, err)
		require.NoError(t, server.Close())
	}
}
