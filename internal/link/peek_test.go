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
// given back, and counts as read for a Close if Peek was told so.
func TestPeek(t *testing.T) {
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		_, err := client.Write([]byte("0123456789"))
		require.NoError(t, err)
		got, err := server.Peek(4, false)
		require.NoError(t, err)
		require.Equal(t, "0123", string(got))
		server.Unpeek()
		got, err = server.Peek(0, false)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(got))
		server.Consume(3, true)
		p := make([]byte, 2)
		n, err := server.Read(p)
		require.NoError(t, err)
		require.Equal(t, "34", string(p[:n]))

		got, err = server.Peek(0, true)
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
			return server.end.freed
		}
		require.False(t, freed(), "the ring was given back while it was peeked at")
		server.Unpeek()
		require.Eventually(t, freed, patience, time.Millisecond)
		_, err = server.Peek(0, false)
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// TestPeekedUnread: what Peek returned is unread unless it was told otherwise, however much it is, and so is
// what Unpeek gives back.
func TestPeekedUnread(t *testing.T) {
	b := newBed(t, Config{})
	for name, look := range map[string]func(server *Stream) error{
		"Peek":                func(server *Stream) error { _, err := server.Peek(1, false); return err },
		"Peek at all":         func(server *Stream) error { _, err := server.Peek(0, false); return err },
		"as read, given back": func(server *Stream) error { _, err := server.Peek(0, true); server.Unpeek(); return err },
		"as read, and again":  func(server *Stream) error { _, _ = server.Peek(0, true); _, err := server.Peek(0, false); return err },
	} {
		client, server := b.pair()
		_, err := client.Write([]byte("x"))
		require.NoError(t, err, name)
		require.NoError(t, look(server), name)
		require.NoError(t, server.Close(), name)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET, name)
		server.Unpeek()
	}
}

// TestPeekDeadline: it gives up as Read does.
func TestPeekDeadline(t *testing.T) {
	b := newBed(t, Config{})
	client, _ := b.pair()
	require.NoError(t, client.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	within(t, "Peek", func() {
		for range 2 {
			_, err := client.Peek(0, false)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
	})
}
