package rdmanet

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rdmanet/go-rdmanet/internal/leaktest"
)

// Exhaust has the process use up its descriptors, until Limit(-1).
func (r *Remote) Exhaust(int, *int) (err error) {
	r.unlimit, _, err = leaktest.TakeDescriptors()
	return err
}

// EchoTCP returns what arrives at the address, which takes one connection of package net.
func (r *Remote) EchoTCP(_ int, at *string) error {
	l, err := net.Listen("tcp", loopbackAddr)
	if err != nil {
		return err
	}
	*at = l.Addr().String()
	go func() {
		defer l.Close()
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	return nil
}

// TestStreamsWithoutDescriptors has the streams of a process go on that has no descriptor left, as those
// of TCP do. The rings of its peer grow meanwhile, and it has to be given them.
func TestStreamsWithoutDescriptors(t *testing.T) {
	onSoftware(t)
	fl := flavours()[0]
	t.Run("accepted there", func(t *testing.T) {
		r := startRemote(t)
		at := call[string](r, "Listen", RemoteListen{Flavour: fl.name})
		goOnWithoutDescriptors(t, r, func() (*Conn, *remoteConn) {
			c, err := fl.dialer.dial(t.Context(), "rdma", at)
			require.NoError(t, err)
			return c, r.accept()
		})
	})
	t.Run("dialled there", func(t *testing.T) {
		r := startRemote(t)
		l := fl.newListener(t)
		goOnWithoutDescriptors(t, r, func() (*Conn, *remoteConn) {
			end := call[RemoteEnd](r, "Dial", RemoteDial{Flavour: fl.name, Addr: l.Addr().String()})
			c, err := l.AcceptConn()
			require.NoError(t, err)
			return c, r.conn(end)
		})
	})
}

// goOnWithoutDescriptors opens streams, and a connection of TCP beside, leaves the process no descriptor,
// and has it echo more and more.
func goOnWithoutDescriptors(t *testing.T, r *remote, open func() (*Conn, *remoteConn)) {
	tcp, err := net.Dial("tcp", call[string](r, "EchoTCP", 0))
	require.NoError(t, err)
	defer tcp.Close()
	all := []net.Conn{tcp}
	var conns []*Conn
	var echoed []<-chan RemoteSum
	for range 8 {
		c, end := open()
		closeLater(t, c)
		all, conns = append(all, c), append(conns, c)
		echoed = append(echoed, begin[RemoteSum](r, "Echo", end.ID))
	}
	for _, c := range all {
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	}
	total := 0
	exchange := func(n int) {
		for _, c := range all {
			msg := make([]byte, n)
			for i := range msg {
				msg[i] = byte(i*7 + total)
			}
			written := begun(func() error {
				_, err := c.Write(msg)
				return err
			})
			require.Equal(t, msg, readFull(t, c, n), "%T", c)
			require.NoError(t, <-written)
		}
		total += n
	}
	exchange(1)
	call[int](r, "Exhaust", 0)
	for n := 1000; n < 3<<20; n *= 4 {
		exchange(n)
	}
	call[int](r, "Limit", -1)
	grown := uint64(0)
	for i, c := range conns {
		grown += c.Stats().RingsGrown
		require.NoError(t, c.CloseWrite())
		require.Equal(t, int64(total), (<-echoed[i]).N)
	}
	require.Positive(t, grown, "the process was given no ring")
}
