package link

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPeek: what Peek returned stays in place, whatever becomes of the stream, until it is consumed or
// given back, and counts as read for a Close.
func TestPeek(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		_, err := client.Write([]byte("0123456789"))
		require.NoError(t, err)
		got, err := server.Peek(4)
		require.NoError(t, err)
		require.Equal(t, "0123", string(got))
		server.Unpeek()
		got, err = server.Peek(0)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(got))
		server.Consume(3, true)
		p := make([]byte, 2)
		n, err := server.Read(p)
		require.NoError(t, err)
		require.Equal(t, "34", string(p[:n]))

		got, err = server.Peek(0)
		require.NoError(t, err)
		require.Equal(t, "56789", string(got))
		require.NoError(t, server.Close())
		_, err = client.Read(p)
		require.ErrorContains(t, err, "EOF", "the peer is not told that anything is unread")
		// Other streams come and go, and take what memory there is.
		for range 8 {
			c, s := b.pair()
			_, err := c.Write([]byte("abcdefghijklmnopqrstuvwxyz"))
			require.NoError(t, err)
			_, err = s.Read(make([]byte, 100))
			require.NoError(t, err)
			_, _ = c.Close(), s.Close()
		}
		require.Equal(t, "56789", string(got))
		freed := func() bool {
			server.e.mu.Lock()
			defer server.e.mu.Unlock()
			return server.freed
		}
		require.False(t, freed(), "the ring was given back while it was peeked at")
		server.Unpeek()
		require.Eventually(t, freed, patience, time.Millisecond)
		_, err = server.Peek(0)
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// TestPeekedUnread: what Unpeek gives back is unread again.
func TestPeekedUnread(t *testing.T) {
	b := newBed(t, Config{})
	client, server := b.pair()
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)
	_, err = server.Peek(0)
	require.NoError(t, err)
	server.Unpeek()
	require.NoError(t, server.Close())
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// TestLendDeadline: it gives up as Read does.
func TestLendDeadline(t *testing.T) {
	b := newBed(t, Config{})
	client, _ := b.pair()
	require.NoError(t, client.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	within(t, "Peek", func() {
		for range 2 {
			_, err := client.Peek(0)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
	})
}
