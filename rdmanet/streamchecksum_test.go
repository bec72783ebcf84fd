package rdmanet

import (
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/ring"
)

// TestStreamChecksum changes a bit in the memory of a ring: what came before that message is read
// and none of its own, both ends say why, and the process counts it.
func TestStreamChecksum(t *testing.T) {
	usual := slog.Default()
	slog.SetDefault(quiet)
	t.Cleanup(func() { slog.SetDefault(usual) })
	eachChecked(t, func(t *testing.T, fl flavour) {
		waitForNone(t)
		before := ReadStats()
		client, server := fl.pair(t)
		require.True(t, client.Checksum() && server.Checksum())
		require.True(t, client.info().Checksum && server.info().Checksum)
		write(t, client, 24)
		write(t, client, 50)
		require.Eventually(t, func() bool { return server.Stats().MessagesReceived == 2 }, patience, time.Millisecond)
		first, err := server.Peek(24)
		require.NoError(t, err)
		require.Len(t, first, 24)
		// What Peek returns is the memory of the ring, and the next frame lies behind it.
		unsafe.Slice(unsafe.SliceData(first), 100)[24+ring.FrameHeaderLen+10] ^= 1
		_, err = server.Discard(24)
		require.NoError(t, err)

		for _, read := range readings {
			b, err := read(server, 100)
			requireChecksumError(t, err)
			require.Empty(t, b)
		}
		_, err = server.Write([]byte{1})
		requireChecksumError(t, err)
		require.EqualValues(t, 1, server.Stats().ChecksumErrors)
		require.EqualValues(t, 24, server.Stats().BytesRead)
		_, err = client.Read(make([]byte, 1))
		requireChecksumError(t, err)
		_, err = client.Write([]byte{1})
		requireChecksumError(t, err)
		require.Zero(t, client.Stats().ChecksumErrors, "it is the finder who counts")

		d := counted(t, server.Device(), before)
		require.EqualValues(t, 1, d.ChecksumErrors-deviceStats(before, server.Device()).ChecksumErrors)
	})
	t.Run("who wants them", func(t *testing.T) {
		for _, c := range []struct{ asks, requires bool }{{}, {asks: true}, {requires: true}, {asks: true, requires: true}} {
			client, server := flavour{dialer: Dialer{Checksum: c.asks}, listen: ListenConfig{Checksum: c.requires}}.pair(t)
			require.Equal(t, c.asks || c.requires, client.Checksum())
			require.Equal(t, c.asks || c.requires, server.Checksum())
			write(t, client, 10)
			readFull(t, server, 10)
		}
	})
}
