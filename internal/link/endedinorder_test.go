package link

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestResetBehindTheEnd: a peer that ends what it sends and then breaks off, as its Close does while bytes
// lie unread, has said all the same that there is no more: Read says so, and Write that it has failed.
// TCP beside it does the same.
func TestResetBehindTheEnd(t *testing.T) {
	type end interface {
		net.Conn
		CloseWrite() error
	}
	test := func(t *testing.T, client, server end) {
		for _, c := range []end{client, server} {
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		}
		_, err := client.Write([]byte("unread"))
		require.NoError(t, err)
		_, err = io.ReadFull(server, make([]byte, 1))
		require.NoError(t, err)
		_, err = server.Write([]byte("data"))
		require.NoError(t, err)
		require.NoError(t, server.CloseWrite())
		require.NoError(t, server.Close())
		require.Eventually(t, func() bool { // the reset has arrived
			_, err = client.Write([]byte("x"))
			return err != nil
		}, patience, time.Millisecond)
		require.ErrorIs(t, err, syscall.EPIPE)
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Equal(t, "data", string(got))
		for range 2 {
			n, err := client.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			require.Zero(t, n)
		}
		_, err = client.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		require.NoError(t, client.Close())
	}
	t.Run("TCP", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		client, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		server, err := l.Accept()
		require.NoError(t, err)
		test(t, client.(end), server.(end))
	})
	eachFlavour(t, func(t *testing.T, cfg Config) {
		b := newBed(t, cfg)
		client, server := b.pair()
		test(t, client, server)
		client, server = b.pair()
		test(t, server, client)
	})
}

// TestResetBehindTheEndIsCounted: what broke the stream off is in its status all the same.
func TestResetBehindTheEndIsCounted(t *testing.T) {
	client, server := newBed(t, Config{}).pair()
	require.NoError(t, server.CloseWrite())
	require.NoError(t, server.Reset())
	require.Eventually(t, func() bool {
		client.e.pollNow()
		return client.Failure() != nil
	}, patience, time.Millisecond)
	require.Equal(t, client.Failure(), client.Status().Err)
	_, err := client.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}
