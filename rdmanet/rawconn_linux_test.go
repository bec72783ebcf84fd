package rdmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errUnexpected = errors.New("unread data")

// readCheck looks whether a connection is alive by reading a byte, as go-sql-driver/mysql and
// go-redis do.
func readCheck(conn net.Conn) error { return checkBy(conn, syscall.Read, errUnexpected) }

// peekCheck looks by peeking at one, as Thrift does, to which unread data is a sign of life.
func peekCheck(conn net.Conn) error {
	peek := func(fd int, p []byte) (int, error) {
		n, _, err := syscall.Recvfrom(fd, p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n, err
	}
	return checkBy(conn, peek, nil)
}

func checkBy(conn net.Conn, look func(fd int, p []byte) (int, error), unread error) error {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var lookErr error
	if err := raw.Read(func(fd uintptr) bool {
		var p [1]byte
		n, lookErr = look(int(fd), p[:])
		return true
	}); err != nil {
		return err
	}
	switch {
	case n > 0:
		return unread
	case errors.Is(lookErr, syscall.EAGAIN):
		return nil
	case lookErr == nil:
		return io.EOF
	}
	return lookErr
}

var livenessChecks = map[string]func(net.Conn) error{"read": readCheck, "peek": peekCheck}

// TestLivenessChecks looks at a connection as pools do, in its whole life.
func TestLivenessChecks(t *testing.T) {
	for name, check := range livenessChecks {
		t.Run(name, func(t *testing.T) {
			ends := map[string]func(t *testing.T, peer *Conn){
				"close":      func(t *testing.T, peer *Conn) { require.NoError(t, peer.Close()) },
				"half-close": func(t *testing.T, peer *Conn) { require.NoError(t, peer.CloseWrite()) },
				"reset": func(t *testing.T, peer *Conn) {
					require.NoError(t, peer.SetLinger(0))
					require.NoError(t, peer.Close())
				},
				"close behind data": func(t *testing.T, peer *Conn) {
					write(t, peer, 10)
					require.NoError(t, peer.Close())
				},
			}
			for name, end := range ends {
				t.Run(name, func(t *testing.T) {
					client, server := pair(t)
					require.NoError(t, check(client), "a new connection")
					write(t, client, 10)
					readFull(t, server, 10)
					write(t, server, 10)
					readFull(t, client, 10)
					require.NoError(t, check(client), "one that was used")
					end(t, server)
					requireEnds(t, check, client)
					require.Equal(t, io.EOF, check(client), "it stays so")
				})
			}
			t.Run("unread data", func(t *testing.T) {
				client, server := pair(t)
				write(t, server, 10)
				require.Eventually(t, func() bool { return client.stream.s.Status().Unread == 10 }, patience, time.Millisecond)
				require.NoError(t, check(client))
				readFull(t, client, 10)
				require.NoError(t, check(client))
			})
			t.Run("after the deadline", func(t *testing.T) {
				client, _ := pair(t)
				require.NoError(t, client.SetDeadline(time.Unix(1, 0)))
				require.NoError(t, check(client))
			})
			t.Run("closed", func(t *testing.T) {
				client, _ := pair(t)
				require.NoError(t, client.Close())
				requireOpError(t, check(client), "raw-read", nil, net.ErrClosed)
			})
		})
	}
}

// TestLivenessAtOnce looks right behind the peer's Close, while no call would take in what it has said. A server may
// close the connection with its answer; a pool that does not see it gives the connection to the next request.
func TestLivenessAtOnce(t *testing.T) {
	onSoftware(t)
	for name, check := range livenessChecks {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			for range 10 { // then the next answer is looked for, and nothing else
				write(t, client, 10)
				readFull(t, server, 10)
				write(t, server, 10)
				readFull(t, client, 10)
			}
			require.NoError(t, check(client))
			require.NoError(t, server.Close())
			require.Equal(t, io.EOF, check(client))
		})
	}
}

// requireEnds waits until a check finds that the peer has ended.
func requireEnds(t *testing.T, check func(net.Conn) error, c *Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := check(c)
		if err != nil {
			require.Equal(t, io.EOF, err)
		}
		return err != nil
	}, patience, time.Millisecond)
}

// TestChecksOfTCP: the checks say of TCP what they say of RDMA, but for unread data.
func TestChecksOfTCP(t *testing.T) {
	l, err := net.Listen("tcp", loopbackAddr)
	require.NoError(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := l.Accept()
	require.NoError(t, err)
	for _, check := range livenessChecks {
		require.NoError(t, check(client))
	}
	require.NoError(t, server.Close())
	for _, check := range livenessChecks {
		require.Eventually(t, func() bool { return check(client) == io.EOF }, patience, time.Millisecond)
	}
}

// openDescriptors are those of this process.
func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// isOpen reports whether a descriptor is one.
func isOpen(fd uintptr) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFD, 0)
	return errno == 0
}

// descriptorOf is the one of a connection that is looked at.
func descriptorOf(t *testing.T, c *Conn) (fd uintptr) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(d uintptr) { fd = d }))
	return fd
}

// TestLivenessDescriptor: it is made when it is asked for, once, and closed with the connection.
func TestLivenessDescriptor(t *testing.T) {
	client, server := pair(t)
	raw, err := client.SyscallConn()
	require.NoError(t, err)
	require.Nil(t, client.stream.alive.Load(), "nobody has asked for a descriptor")
	var fd uintptr
	require.NoError(t, raw.Control(func(d uintptr) { fd = d }))
	require.Equal(t, fd, descriptorOf(t, client))
	require.NotEqual(t, fd, descriptorOf(t, server))
	require.NoError(t, raw.Read(func(d uintptr) bool { require.Equal(t, fd, d); return true }))

	far := client.stream.alive.Load().far.Load()
	require.NoError(t, server.Close())
	requireEnds(t, readCheck, client)
	require.False(t, client.stream.alive.Load().far.Load() == far)

	require.NoError(t, raw.Read(func(d uintptr) bool {
		require.NoError(t, client.Close())
		require.True(t, isOpen(d), "it is open while the call has it")
		return true
	}))
	require.Nil(t, client.stream.alive.Load())
	requireOpError(t, raw.Control(func(uintptr) { t.Error("called") }), "raw-control", nil, net.ErrClosed)
	requireOpError(t, raw.Write(func(uintptr) bool { t.Error("called"); return true }), "raw-write", nil, net.ErrClosed)
}

// TestLivenessLeaks closes connections that were looked at, from several goroutines at once.
func TestLivenessLeaks(t *testing.T) {
	keep, _ := pair(t) // its lane has its descriptors
	before := openDescriptors(t)
	for range 20 {
		client, server, err := dialPair(&Dialer{}, &ListenConfig{})
		require.NoError(t, err)
		var looking sync.WaitGroup
		for range 4 {
			looking.Go(func() { assert.NoError(t, readCheck(client)) })
		}
		looking.Wait()
		require.NoError(t, peekCheck(server))
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		<-client.done()
		<-server.done()
	}
	require.Eventually(t, func() bool { return openDescriptors(t) <= before }, patience, time.Millisecond)
	require.NoError(t, readCheck(keep))
}

// TestRawConnHasNoData: it waits for nothing, writes nothing, and a panic holds nothing up.
func TestRawConnHasNoData(t *testing.T) {
	client, server := pair(t)
	raw, err := client.SyscallConn()
	require.NoError(t, err)
	calls := 0
	err = raw.Read(func(uintptr) bool { calls++; return false })
	requireOpError(t, err, "raw-read", nil, errors.ErrUnsupported)
	require.Equal(t, 1, calls)
	err = raw.Write(func(uintptr) bool { t.Error("called"); return true })
	requireOpError(t, err, "raw-write", nil, errors.ErrUnsupported)
	require.EqualError(t, err, fmt.Sprintf("raw-write rdma %v->%v: the descriptor carries no data; use Write: unsupported operation", client.LocalAddr(), client.RemoteAddr()))
	require.Panics(t, func() { _ = raw.Control(func(uintptr) { panic("x") }) })
	require.NoError(t, client.Close())
	<-client.done()
	readEOF(t, server)
}
