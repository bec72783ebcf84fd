package rdmanet

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noise is n random bytes of a seed.
func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func TestPeekDoesNotConsume(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		_, err := client.Write([]byte("hello world"))
		require.NoError(t, err)
		require.Equal(t, "hello world", string(readPeeked(t, server, 11)))
		for _, n := range []int{1, 5, 11} {
			b, err := server.Peek(n)
			require.NoError(t, err)
			require.Equal(t, "hello world"[:n], string(b))
		}
		b, err := server.Peek(100)
		require.NoError(t, err)
		require.Equal(t, "hello world", string(b), "no more than there is")
		b, err = server.Peek(0)
		require.NoError(t, err)
		require.Equal(t, "hello world", string(b))
		n, err := server.Discard(6)
		require.NoError(t, err)
		require.Equal(t, 6, n)
		b, err = server.Peek(-1)
		require.NoError(t, err)
		require.Equal(t, "world", string(b))
		require.Equal(t, "world", string(readFull(t, server, 5)), "Read goes on behind Discard")
	})
}

// readPeeked waits until n bytes lie together.
func readPeeked(t *testing.T, c *Conn, n int) []byte {
	t.Helper()
	for {
		b, err := c.Peek(n)
		require.NoError(t, err)
		if len(b) == n {
			return b
		}
	}
}

// TestPeekWraps reads a stream of many rings by Peek and Discard alone, and no
// byte of it is copied.
func TestPeekWraps(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		const total = 1 << 20
		want := noise(total, 1)
		go func() {
			next := splits(1)
			for b := want; len(b) > 0; {
				n := min(next(), len(b))
				if _, err := client.Write(b[:n]); err != nil {
					return
				}
				b = b[n:]
			}
			_ = client.CloseWrite()
		}()
		var got bytes.Buffer
		next := splits(2)
		for {
			b, err := server.Peek(next())
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.LessOrEqual(t, len(b), server.Stats().ReadBuffer)
			use := b[:1+rand.IntN(len(b))]
			got.Write(use)
			n, err := server.Discard(len(use))
			require.NoError(t, err)
			require.Equal(t, len(use), n)
		}
		require.True(t, bytes.Equal(want, got.Bytes()))
		s := server.Stats()
		require.EqualValues(t, total, s.BytesPlaced)
		require.Zero(t, s.BytesCopied)
		require.EqualValues(t, total, s.BytesRead)
	})
}

func TestDiscardWaits(t *testing.T) {
	client, server := pair(t)
	done := make(chan error, 1)
	go func() {
		n, err := server.Discard(100_000)
		if err == nil && n != 100_000 {
			t.Errorf("discarded %d", n)
		}
		done <- err
	}()
	_, err := client.Write(make([]byte, 100_000))
	require.NoError(t, err)
	require.NoError(t, <-done)
	_, err = client.Write([]byte("x"))
	require.NoError(t, err)
	require.Equal(t, "x", string(readFull(t, server, 1)))
	require.Zero(t, server.Stats().BytesPlaced, "what nobody peeked at was not placed")
	require.EqualValues(t, 1, server.Stats().BytesCopied, "nor copied, but for what was read")
}

func TestDiscardBeyondTheEnd(t *testing.T) {
	client, server := pair(t)
	_, err := client.Write([]byte("abc"))
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	n, err := server.Discard(4)
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	n, err = server.Discard(1)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
	_, err = server.Peek(1)
	require.Equal(t, io.EOF, err)
}

func TestPeekMisuse(t *testing.T) {
	client, server := pair(t)
	_, err := client.Write([]byte("abc"))
	require.NoError(t, err)
	n, err := server.Discard(-1)
	require.Zero(t, n)
	requireOpError(t, err, "read", []string{"cannot discard a negative number of bytes"}, syscall.EINVAL)
	n, err = server.Discard(0)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, "abc", string(readFull(t, server, 3)), "nothing was lost")
}

func TestPeekErrorsAreThoseOfRead(t *testing.T) {
	client, server := pair(t)
	require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := server.Peek(1)
	requireOpError(t, err, "read", []string{"i/o timeout"}, os.ErrDeadlineExceeded)
	_, err = server.Discard(1)
	requireOpError(t, err, "read", []string{"i/o timeout"}, os.ErrDeadlineExceeded)
	require.NoError(t, server.SetReadDeadline(time.Time{}))
	require.NoError(t, client.SetLinger(0))
	require.NoError(t, client.Close())
	_, err = server.Peek(1)
	requireOpError(t, err, "read", []string{"read: connection reset by peer"}, syscall.ECONNRESET)
}

// TestCloseAfterPeek: what Peek has given out is unread until it is read or discarded. A Close that leaves
// bytes unread resets the peer.
func TestCloseAfterPeek(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		for name, after := range map[string]func(c *Conn) error{
			"Read":    func(c *Conn) error { _, err := io.ReadFull(c, make([]byte, 50)); return err },
			"Discard": func(c *Conn) error { _, err := c.Discard(50); return err },
			"nothing": func(c *Conn) error { _, err := c.Discard(0); return err },
			"Close":   func(*Conn) error { return nil },
		} {
			client, server := fl.pair(t)
			_, err := client.Write(make([]byte, 100))
			require.NoError(t, err)
			require.Eventually(t, func() bool { b, err := server.Peek(0); return err == nil && len(b) == 100 }, patience, time.Millisecond, name)
			require.NoError(t, after(server), name)
			require.NoError(t, server.Close(), name)
			_, err = client.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET, name)
		}
	})
}

// TestDiscardAfterCloseBesideOne: a Discard that finds the Conn closed does not end what a call looks at that is
// inside.
func TestDiscardAfterCloseBesideOne(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		_, err := client.Write([]byte("abc"))
		require.NoError(t, err)
		_, err = server.Peek(1)
		require.NoError(t, err)
		discard := func() {
			_, err := server.Discard(1)
			require.ErrorIs(t, err, net.ErrClosed)
		}
		require.True(t, server.life.lock(dirRead)) // a WriteTo that has just begun
		require.NoError(t, server.Close())
		discard()
		require.True(t, server.stream.flags.has(flagPeeked))
		server.exit(server.life.unlock(dirRead))
		discard()
		require.False(t, server.stream.flags.has(flagPeeked), "it is alone")
	})
}
