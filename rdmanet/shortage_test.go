package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/internal/verbs/faulty"
)

// TestShortageIsNotStale has a shortage begin and end while nobody is in Accept, whether
// anybody waits for its end or not: the Accept that follows knows nothing of it.
func TestShortageIsNotStale(t *testing.T) {
	eachDevice(t, func(t *testing.T, fl flavour) {
		l := fl.newListener(t)
		l.event(&cm.Event{Type: cm.ConnectError, ID: l.id, Err: os.NewSyscallError("accept4", syscall.EMFILE)})
		require.EqualValues(t, 1, l.Stats().Shortages)
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Millisecond)))
		_, err := l.Accept()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody is there")
		require.NoError(t, l.SetDeadline(time.Time{}))
		client := begun(func() error {
			c, err := fl.dialer.dial(context.Background(), "rdma", l.Addr().String())
			if err == nil {
				err = c.Close()
			}
			return err
		})
		c, err := l.AcceptConn()
		require.NoError(t, err, "all is well")
		requireClosed(t, c)
		require.NoError(t, <-client)
	})
}

// TestShortageOfTCPIsNotStale: what was wrong with the socket's accept while nobody was in Accept is not told to the
// next one, which has it tried again. What is still wrong is.
func TestShortageOfTCPIsNotStale(t *testing.T) {
	onTCPPorts(t)
	l, err := Listen("tcp", testAddr())
	require.NoError(t, err)
	defer l.Close()
	short := acceptedTCP{err: &net.OpError{Op: opAccept, Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}}
	socket := make(chan acceptedTCP, 2)

	socket <- short
	socket <- acceptedTCP{conn: new(net.TCPConn)}
	_, c, err := l.(*Listener).next(socket)
	require.NoError(t, err)
	require.NotNil(t, c)

	socket <- short
	socket <- short
	_, c, err = l.(*Listener).next(socket)
	require.Equal(t, short.err, err)
	require.Nil(t, c)
}

// TestShortageOfListenThatFails: a client that waits for descriptors while Listen has one device listen and fails on
// the next leaves when the listener is given up.
func TestShortageOfListenThatFails(t *testing.T) {
	onSoftware(t)
	l := newListener("rdma", sizes{}, &ListenConfig{Logger: quiet})
	closed := make(chan struct{})
	left := make(chan any, 1)
	waits := func() {
		defer func() { left <- recover() }()
		_ = l.shortages.Serve(func() bool { return false }, func() error { return syscall.EMFILE }, func(error) {},
			func(<-chan struct{}) error { <-closed; return net.ErrClosed })
	}
	failing0.OnAcquire(func(what string) error {
		if what != faulty.Listen {
			return nil
		}
		go waits()
		for !l.shortages.Waiting() {
			time.Sleep(time.Millisecond)
		}
		return syscall.EADDRINUSE
	})
	defer failing0.OnAcquire(nil)
	require.ErrorIs(t, l.listenRDMA(&ListenConfig{Device: failing0.Name()}, netip.MustParseAddrPort(loopbackAddr), nil), syscall.EADDRINUSE)
	close(closed)
	require.Nil(t, <-left)
}
