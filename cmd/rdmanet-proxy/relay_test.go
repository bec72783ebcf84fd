package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/cli/endpoint"
	"github.com/rdmanet/go-rdmanet/rdmanet"
)

func random(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// send writes b and ends the direction.
func send(conn net.Conn, b []byte) error {
	_, err := conn.Write(b)
	return errors.Join(err, endpoint.CloseWrite(conn))
}

func TestEitherDirectionEndsFirst(t *testing.T) {
	request, answer := random(300_001, 1), random(1<<20+1, 2)
	exchange := func(t *testing.T, first, second net.Conn) {
		sent := make(chan error)
		go func() { sent <- send(first, request) }()
		got, err := io.ReadAll(second)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.True(t, bytes.Equal(request, got), "the request arrives, and its end")
		go func() { sent <- send(second, answer) }()
		got, err = io.ReadAll(first)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.True(t, bytes.Equal(answer, got), "the other direction has gone on")
	}
	onEveryWay(t, func(t *testing.T, r *route) {
		client, server := r.connect(t)
		exchange(t, client, server)
		client, server = r.connect(t)
		exchange(t, server, client)
		require.NoError(t, r.front.stop())
		require.NoError(t, r.back.stop())
		assert.Contains(t, r.front.total(), "connections: 2, could not reach the server: 0, broken: 0, cut off: 0; there: 1.29 MiB, back: 1.29 MiB;")
	})
}

// TestCloseIsTheEnd closes an end at once, with nothing unread: the other end sees an
// end of file after the last byte.
func TestCloseIsTheEnd(t *testing.T) {
	onEveryWay(t, func(t *testing.T, r *route) {
		for range 20 {
			client, server := r.connect(t)
			data := random(100_000, 3)
			go func() {
				_, _ = client.Write(data)
				_ = client.Close()
			}()
			got, err := io.ReadAll(server)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
			require.NoError(t, server.Close())
		}
	})
}

// TestClientThatHasClosedAlready closes an RDMA client before its connection is carried
// on. What it sent arrives; only an answer finds that nobody is there.
func TestClientThatHasClosedAlready(t *testing.T) {
	for _, answer := range []string{"", "too late"} {
		at := local(t, "rdma")
		l, err := at.Listen(t.Context(), at.address)
		require.NoError(t, err)
		defer l.Close()
		at.address = l.Addr().String()
		client, accepted := dial(t, at), accept(t, l)
		at = local(t, "tcp")
		l, err = at.Listen(t.Context(), at.address)
		require.NoError(t, err)
		defer l.Close()
		at.address = l.Addr().String()
		dialled, server := dial(t, at), accept(t, l)

		_, err = io.WriteString(client, "hello")
		require.NoError(t, err)
		require.NoError(t, client.Close())
		done := make(chan error)
		go func() { done <- (&relay{client: accepted, server: dialled}).run(context.Background()) }()
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got))
		if answer == "" {
			require.NoError(t, server.Close())
			require.NoError(t, <-done)
			continue
		}
		for err = nil; err == nil; {
			_, err = io.WriteString(server, answer)
		}
		assert.True(t, brokenByPeer(err), err)
		assert.ErrorIs(t, <-done, syscall.EPIPE)
	}
}

func TestReset(t *testing.T) {
	onEveryWay(t, func(t *testing.T, r *route) {
		for _, by := range []string{"client", "server"} {
			client, server := r.connect(t)
			broken, whole := client, server
			if by == "server" {
				broken, whole = server, client
			}
			// Both proxies have seen the connection, both ways.
			_, err := client.Write([]byte("?"))
			require.NoError(t, err)
			_, err = io.ReadFull(server, make([]byte, 1))
			require.NoError(t, err)
			reset(broken)
			n, err := whole.Read(make([]byte, 1))
			assert.Zero(t, n)
			if broken.LocalAddr().Network() == "unix" {
				assert.ErrorIs(t, err, io.EOF, "a Unix socket knows no reset")
				_ = whole.Close()
				continue
			}
			assert.ErrorIs(t, err, syscall.ECONNRESET, by)
			_, err = whole.Write([]byte("!"))
			assert.True(t, brokenByPeer(err), err)
		}
	})
}

// TestResetWithUnreadBytes closes an end that has not read all, which breaks the
// connection for the other, also while that one writes.
func TestResetWithUnreadBytes(t *testing.T) {
	onEveryWay(t, func(t *testing.T, r *route) {
		client, server := r.connect(t)
		failed := make(chan error)
		go func() {
			for {
				if _, err := client.Write(make([]byte, 64<<10)); err != nil {
					failed <- err
					return
				}
			}
		}()
		_, err := io.ReadFull(server, make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, server.Close())
		err = <-failed
		assert.True(t, brokenByPeer(err), err)
	})
}

// TestSlowReaderStopsTheWriter has the server read nothing: what the client can
// write is what fits into the buffers of the sockets and into the rings.
func TestSlowReaderStopsTheWriter(t *testing.T) {
	onEveryWay(t, func(t *testing.T, r *route) {
		bound := int64(3<<20 + rdmanet.DefaultMaxReadBuffer*3/2) // Unix sockets, a ring and those before it
		for _, end := range []string{scheme(r.entry.Network), r.l.Addr().Network()} {
			if end == "tcp" {
				bound += tcpBuffers(t)
			}
		}
		client, server := r.connect(t)
		const period = 1 << 20
		data := random(period, 4)
		var written int64
		for written < bound {
			require.NoError(t, client.SetWriteDeadline(time.Now().Add(time.Second)))
			n, err := client.Write(data[written%period:])
			written += int64(n)
			if err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				break
			}
		}
		t.Logf("%d bytes are on their way", written)
		require.Less(t, written, bound, "the proxies take no more than there is room for")

		// Nobody else is stopped.
		other, otherServer := r.connect(t)
		sent := make(chan error)
		go func() { sent <- send(other, data) }()
		got, err := io.ReadAll(otherServer)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.True(t, bytes.Equal(data, got))
		require.NoError(t, errors.Join(other.Close(), otherServer.Close()))

		// And nothing is lost when the server reads again.
		require.NoError(t, endpoint.CloseWrite(client))
		buf, read := make([]byte, period), int64(0)
		for err = nil; err == nil; {
			var n int
			n, err = io.ReadFull(server, buf[:period-read%period])
			require.True(t, bytes.Equal(buf[:n], data[read%period:][:n]), "the bytes from %d", read)
			read += int64(n)
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, written, read)
	})
}

// tcpBuffers is what Linux lets the buffers of a TCP connection grow to by itself.
func tcpBuffers(t *testing.T) (bytes int64) {
	for _, name := range []string{"tcp_rmem", "tcp_wmem"} {
		sizes, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		require.NoError(t, err)
		fields := strings.Fields(string(sizes))
		n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		require.NoError(t, err)
		bytes += n
	}
	return bytes
}

func TestManyConnectionsAtOnce(t *testing.T) {
	const n = 200
	r := newRoute(t, "tcp", "tcp")
	go func() {
		for {
			conn, err := r.l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	connect := func() (net.Conn, error) {
		client, err := r.entry.Dial(t.Context(), r.entry.address)
		if err != nil {
			return nil, err
		}
		_ = client.SetDeadline(time.Now().Add(patience))
		_, err = client.Write([]byte("?"))
		if err == nil {
			_, err = io.ReadFull(client, make([]byte, 1))
		}
		return client, err
	}
	var open, done sync.WaitGroup
	open.Add(n)
	for i := range n {
		done.Go(func() {
			client, err := connect()
			open.Done()
			if !assert.NoError(t, err) {
				return
			}
			defer client.Close()
			open.Wait() // now all are connected
			data := random(100_000+i*977, byte(i))
			go func() { _ = send(client, data) }()
			got, err := io.ReadAll(client)
			assert.NoError(t, err)
			assert.True(t, bytes.Equal(data, got), "connection %d", i)
		})
	}
	done.Wait()
	require.NoError(t, r.front.stop())
	require.NoError(t, r.back.stop())
	assert.EqualValues(t, n, r.back.connections.Load())
	assert.Zero(t, r.back.broken.Load())
}

// TestNothingIsCopied sends through sockets at both ends: the kernel fills registered
// memory and reads from the ring.
func TestNothingIsCopied(t *testing.T) {
	r := newRoute(t, "tcp", "tcp")
	client, server := r.connect(t)
	data := random(8<<20, 5)
	sent := make(chan error)
	go func() { sent <- send(client, data) }()
	got, err := io.ReadAll(server)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(data, got))
	require.NoError(t, errors.Join(client.Close(), server.Close()))
	for _, p := range []*background{r.front, r.back} {
		require.NoError(t, p.stop())
		assert.EqualValues(t, len(data), p.placed.Load())
		assert.Zero(t, p.copied.Load())
	}
}
