package rdmanet

import (
	"io"
	"net"
)

var (
	_ net.Conn      = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
)

// Conn is a connection whose bytes move by RDMA. It behaves as a *net.TCPConn
// does. All methods may be called concurrently, but see Peek and Reserve; concurrent
// Reads are served one after the other, and so are concurrent Writes. A Conn that neither Dial nor a Listener has
// made fails with syscall.EINVAL.
type Conn struct {
	*dropGuard
}

// ok reports whether c is a connection, and not the zero value of a program.
func (c *Conn) ok() bool { return c != nil && c.dropGuard != nil }

func (c *Conn) opError(op string, err error) error {
	if isWhole(err) { // without addresses, which most connections never need
		return err
	}
	return opError(op, c.network.String(), c.localAddr(), c.remoteAddr(), err)
}

// LocalAddr returns the local address, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	return c.localAddr()
}

// RemoteAddr returns the peer's address, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	return c.remoteAddr()
}

// Device returns the name of the RDMA device that carries the connection.
func (c *Conn) Device() string {
	if !c.ok() {
		return ""
	}
	return c.stream.deviceName()
}

// Stats returns what the connection counted so far. It may be called at any
// time, also after Close.
func (c *Conn) Stats() ConnStats {
	if !c.ok() {
		return ConnStats{}
	}
	return c.stream.stats()
}
