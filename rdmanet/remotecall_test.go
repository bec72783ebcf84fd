//go:build linux

package rdmanet

import (
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// remoteConn is a connection that another process holds, as a net.Conn.
type remoteConn struct {
	r *remote
	RemoteEnd
}

func (c *remoteConn) Read(p []byte) (int, error) {
	var rep RemoteIOReply
	if err := c.r.client.Call("Remote.Read", RemoteIO{ID: c.ID, N: len(p)}, &rep); err != nil {
		return 0, err
	}
	return copy(p, rep.Data), rep.Err.err()
}

func (c *remoteConn) Write(p []byte) (int, error) {
	var rep RemoteIOReply
	if err := c.r.client.Call("Remote.Write", RemoteIO{ID: c.ID, Data: p}, &rep); err != nil {
		return 0, err
	}
	return rep.N, rep.Err.err()
}

func (c *remoteConn) do(what string, at time.Time) error {
	var rep RemoteError
	if err := c.r.client.Call("Remote.Do", RemoteDo{ID: c.ID, What: what, At: at}, &rep); err != nil {
		return err
	}
	return rep.err()
}

func (c *remoteConn) Close() error { return c.do("Close", time.Time{}) }

func (c *remoteConn) CloseWrite() error { return c.do("CloseWrite", time.Time{}) }

func (c *remoteConn) SetDeadline(t time.Time) error { return c.do("SetDeadline", t) }

func (c *remoteConn) SetReadDeadline(t time.Time) error { return c.do("SetReadDeadline", t) }

func (c *remoteConn) SetWriteDeadline(t time.Time) error { return c.do("SetWriteDeadline", t) }

func (c *remoteConn) LocalAddr() net.Addr { return addrOf(c.Local) }

func (c *remoteConn) RemoteAddr() net.Addr { return addrOf(c.Remote) }

func addrOf(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

// What travels between the two processes, with names that net/rpc asks for.
type (
	RemoteListen struct {
		Flavour          string
		Backlog          int
		HandshakeTimeout time.Duration
	}
	RemoteDial struct{ Flavour, Addr string }
	RemoteEnd  struct {
		ID            int
		Local, Remote string
	}
	RemoteIO struct {
		ID, N int
		Data  []byte
	}
	RemoteIOReply struct {
		N    int
		Data []byte
		Err  RemoteError
	}
	RemoteDo struct {
		ID   int
		What string
		At   time.Time
	}
	RemoteSend struct {
		ID   int
		Seed uint64
		N    int64
	}
	RemoteConverse struct {
		Flavour string
		Seed    uint64
		Dial    string // whom, if there are Dialers
		Dialers int
	}
	RemotePlay struct {
		ID, Serves, Rounds int
	}
	RemoteSum struct {
		N   int64
		Sum [sha256.Size]byte
		Err RemoteError
	}
)

// A RemoteError is an error on its way: what tests tell apart, and its text.
type RemoteError struct{ Kind, Text string }

var wireKinds = map[string]error{
	"eof": io.EOF, "closed": net.ErrClosed, "timeout": os.ErrDeadlineExceeded,
	"reset": syscall.ECONNRESET, "pipe": syscall.EPIPE,
}

func toWire(err error) RemoteError {
	if err == nil {
		return RemoteError{}
	}
	for kind, target := range wireKinds {
		if errors.Is(err, target) {
			return RemoteError{kind, err.Error()}
		}
	}
	return RemoteError{"other", err.Error()}
}

func (e RemoteError) err() error {
	switch cause := wireKinds[e.Kind]; {
	case e.Kind == "":
		return nil
	case cause == io.EOF:
		return io.EOF
	case cause != nil:
		return &net.OpError{Op: "remote", Net: "rdma", Err: cause}
	}
	return errors.New(e.Text)
}
