package rdmanet

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestCloseTaken closes a connection whose bytes a call has given out already, or is
// copying: they are not unread, so the peer gets the end of the stream and no reset.
func TestCloseTaken(t *testing.T) {
	ended := func(t *testing.T, c *Conn) {
		t.Helper()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	}
	broken := func(t *testing.T, c *Conn) {
		t.Helper()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	writeTo := func(t *testing.T, fl flavour) {
		client, server := fl.pair(t)
		_, err := client.Write([]byte("quit"))
		require.NoError(t, err)
		n, err := server.WriteTo(writerFunc(func(b []byte) (int, error) {
			require.NoError(t, server.Close())
			return len(b), nil
		}))
		require.EqualValues(t, 4, n)
		require.ErrorIs(t, err, net.ErrClosed)
		ended(t, client)
	}
	eachFlavour(t, writeTo)
	t.Run("checksums", func(t *testing.T) { writeTo(t, flavour{dialer: Dialer{Checksum: true}}) })

	t.Run("what WriteTo has not given out is unread", func(t *testing.T) {
		client, server := pair(t)
		_, err := client.Write([]byte("quit"))
		require.NoError(t, err)
		_, _ = server.WriteTo(writerFunc(func(b []byte) (int, error) {
			_, err := client.Write([]byte("more"))
			require.NoError(t, err)
			arrived(t, client)
			require.NoError(t, server.Close())
			return len(b), nil
		}))
		broken(t, client)
	})

	t.Run("a writer that fails has taken nothing", func(t *testing.T) {
		client, server := pair(t)
		_, err := client.Write([]byte("quit"))
		require.NoError(t, err)
		_, err = server.WriteTo(writerFunc(func(b []byte) (int, error) { return -1, nil }))
		require.ErrorIs(t, err, errInvalidWrite)
		require.NoError(t, server.Close())
		broken(t, client)
	})

	t.Run("Read", func(t *testing.T) {
		message := make([]byte, DefaultReadBuffer)
		rounds := 300 // one in forty was reset
		if testing.Short() {
			rounds = 80
		}
		for i := range rounds {
			client, server := pair(t)
			_, err := client.Write(message)
			require.NoError(t, err)
			arrived(t, client)
			var n int
			var both sync.WaitGroup
			begin := make(chan struct{})
			both.Go(func() { <-begin; n, _ = server.Read(make([]byte, len(message))) })
			both.Go(func() {
				<-begin
				for began := time.Now(); time.Since(began) < time.Duration(i%40)*250*time.Nanosecond; {
				}
				_ = server.Close()
			})
			close(begin)
			both.Wait()
			if n == len(message) {
				ended(t, client)
			}
			_ = client.Close()
		}
	})
}

// TestCloseBesideReadFrom closes a connection while a ReadFrom reads its source, which may
// take for ever: the connection goes, and who lingers does not wait for the source.
func TestCloseBesideReadFrom(t *testing.T) {
	eachFlavour(t, func(t *testing.T, fl flavour) {
		client, _ := fl.pair(t)
		reading, give := make(chan struct{}), make(chan struct{})
		done := begun(func() error {
			_, err := client.ReadFrom(readerFunc(func(b []byte) (int, error) {
				close(reading)
				<-give
				return copy(b, "late"), nil
			}))
			return err
		})
		<-reading
		require.NoError(t, client.SetLinger(60))
		within(t, patience, "Close", func() { require.NoError(t, client.Close()); <-client.done() })
		close(give) // which has memory to read into all the same
		require.ErrorIs(t, <-done, net.ErrClosed)
	})
}

// TestLookupTimesOut: a dial that the name server does not answer in time says so.
func TestLookupTimesOut(t *testing.T) {
	usual := net.DefaultResolver
	defer func() { net.DefaultResolver = usual }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for _, network := range []string{"rdma", "tcp"} {
		d := Dialer{Timeout: 20 * time.Millisecond, Logger: quiet}
		_, err := d.Dial(network, "nobody.invalid:1")
		var dns *net.DNSError
		require.ErrorAs(t, err, &dns, "%v", err)
		require.True(t, err.(net.Error).Timeout())
		_, want := (&net.Dialer{Timeout: 20 * time.Millisecond}).Dial("tcp", "nobody.invalid:1")
		require.Equal(t, want.(*net.OpError).Err.Error(), err.(*net.OpError).Err.Error())
	}
}
