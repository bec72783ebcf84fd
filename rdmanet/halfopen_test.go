//go:build linux

package rdmanet

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A captor gets hold of requests: it listens in front of a listener on the wildcard.
type captor struct {
	t    testing.TB
	l    *net.UnixListener
	at   *net.TCPAddr
	wild *net.UnixAddr // the listener's own socket
}

func newCaptor(t testing.TB, l *Listener) *captor {
	t.Helper()
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.addr.Port}
	u, err := net.ListenUnix("unixpacket", socketName(at))
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.Close() })
	wild := &net.UnixAddr{Net: "unixpacket", Name: "@rdmanet/soft0/" + strconv.Itoa(at.Port) + "/*4"}
	return &captor{t, u, at, wild}
}

// A recording is a dialer's own request, for somebody else to send.
type recording struct {
	msg    []byte
	rights []byte        // its descriptors
	name   *net.UnixAddr // where it came from
}

// halfOpen makes a client that has asked for its connection and will not confirm it.
func (c *captor) halfOpen() *net.UnixConn {
	c.t.Helper()
	r := c.record()
	stranger, err := net.DialUnix("unixpacket", r.name, c.wild)
	for ; errors.Is(err, syscall.EADDRINUSE); stranger, err = net.DialUnix("unixpacket", r.name, c.wild) {
		r = c.record() // another process has got the port meanwhile
	}
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = stranger.Close() })
	r.send(c.t, stranger)
	return stranger
}

func (r *recording) send(t testing.TB, s *net.UnixConn) {
	t.Helper()
	_, _, err := s.WriteMsgUnix(r.msg, r.rights, nil)
	require.NoError(t, err)
}

// record has somebody dial and keeps the request. The dialer is gone.
func (c *captor) record() *recording {
	c.t.Helper()
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		d := Dialer{Device: "soft0"}
		conn, err := d.dial(ctx, "rdma", c.at.String())
		if err == nil {
			_ = conn.Close()
		}
		failed <- err
	}()
	dialer, err := c.l.AcceptUnix()
	require.NoError(c.t, err)
	msg, oob := make([]byte, 4096), make([]byte, 4096)
	n, m, _, _, err := dialer.ReadMsgUnix(msg, oob)
	require.NoError(c.t, err)
	name := dialer.RemoteAddr().(*net.UnixAddr)
	cancel()
	require.ErrorIs(c.t, <-failed, context.Canceled)
	require.NoError(c.t, dialer.Close()) // and its name is free
	var rights []int
	messages, err := syscall.ParseSocketControlMessage(oob[:m])
	require.NoError(c.t, err)
	for _, msg := range messages {
		fds, err := syscall.ParseUnixRights(&msg)
		require.NoError(c.t, err)
		rights = append(rights, fds...)
	}
	c.t.Cleanup(func() {
		for _, fd := range rights {
			_ = syscall.Close(fd)
		}
	})
	return &recording{msg[:n], oob[:m], name}
}

// TestHalfOpenGiveWay has a hundred clients that never confirm, which would be more than
// there are places for, and an honest one.
func TestHalfOpenGiveWay(t *testing.T) {
	lc := ListenConfig{Device: "soft0", Backlog: 16, HandshakeTimeout: time.Hour}
	l, err := lc.listen(context.Background(), "rdma4", "0.0.0.0:0")
	require.NoError(t, err)
	defer l.Close()
	c := newCaptor(t, l)
	for range 100 {
		c.halfOpen()
	}
	require.NoError(t, c.l.Close())
	began := time.Now()
	d := Dialer{Device: "soft0", Timeout: patience}
	client, err := d.dial(context.Background(), "rdma", c.at.String())
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, l.SetDeadline(time.Now().Add(patience)))
	server, err := l.AcceptConn()
	require.NoError(t, err)
	defer server.Close()
	require.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String())
	t.Logf("served after %v", time.Since(began))
	s := l.Stats()
	require.NotZero(t, s.Evicted)
	require.Equal(t, uint64(1), s.Established)
	require.NoError(t, l.Close())
}

// TestHalfOpenStay has a client that takes its time where nobody wants its place.
func TestHalfOpenStay(t *testing.T) {
	lc := ListenConfig{Device: "soft0", Backlog: 2, HandshakeTimeout: time.Hour}
	l, err := lc.listen(context.Background(), "rdma4", "0.0.0.0:0")
	require.NoError(t, err)
	defer l.Close()
	c := newCaptor(t, l)
	stranger := c.halfOpen()
	require.NoError(t, c.l.Close())
	d := Dialer{Device: "soft0", Timeout: patience}
	for until := time.Now().Add(2 * patienceOf); time.Now().Before(until); {
		client, err := d.dial(context.Background(), "rdma", c.at.String())
		require.NoError(t, err)
		server, err := l.AcceptConn()
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
	require.Zero(t, l.Stats().Evicted)
	require.NoError(t, stranger.Close())
	require.Eventually(t, func() bool { return l.Stats().Failed == 1 }, patience, time.Millisecond)
}
