package rdmanet

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

var _ syscall.Conn = (*Conn)(nil)

// SyscallConn returns a syscall.RawConn for the checks by which pools of connections find out
// whether a peer has left, as those of go-sql-driver/mysql, go-redis and Thrift do. No socket
// carries the connection, so its descriptor carries no bytes either way:
//
//   - Read calls f once. A read or recv of the descriptor is at its end, with 0 bytes, when the
//     peer has closed or reset the connection, or has gone, also where bytes are unread;
//     until then it fails with EAGAIN, whether bytes are unread or not. Read fails with
//     errors.ErrUnsupported if f returns false, for there is nothing to wait for, and
//     deadlines do not matter to it.
//   - Control calls f. Options that it sets or gets are those of a Unix socket, and have no
//     meaning to the connection; it must not be closed.
//   - Write fails with errors.ErrUnsupported and does not call f.
//
// The first Read or Control makes the descriptor, two to be exact, which are closed with the
// connection: one that is never asked has none. After Close they fail with net.ErrClosed, and
// elsewhere than on Linux with errors.ErrUnsupported.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if !c.ok() {
		return nil, syscall.EINVAL
	}
	return rawConn{c}, nil
}

// rawConn is the syscall.RawConn of a Conn.
type rawConn struct{ c *Conn }

var (
	errRawWait  = fmt.Errorf("the descriptor carries no data to wait for; use Read: %w", errors.ErrUnsupported)
	errRawWrite = fmt.Errorf("the descriptor carries no data; use Write: %w", errors.ErrUnsupported)
)

func (r rawConn) Control(f func(fd uintptr)) error {
	return r.with(opRawControl, func(fd uintptr) bool { f(fd); return true })
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error { return r.with(opRawRead, f) }

func (r rawConn) Write(func(fd uintptr) (done bool)) error {
	if r.c.life.isClosed() {
		return r.c.opError(opRawWrite, net.ErrClosed)
	}
	return r.c.opError(opRawWrite, errRawWrite)
}

// with calls f with the descriptor, which stays open until f has returned.
func (r rawConn) with(op string, f func(fd uintptr) bool) error {
	c := r.c
	if !c.life.incref() {
		return c.opError(op, net.ErrClosed)
	}
	defer func() { c.exit(c.life.decref()) }() // also if f panics
	fd, err := c.stream.liveness()
	if err == nil && !f(uintptr(fd)) {
		err = errRawWait
	}
	return c.opError(op, err)
}
