package rdmanet

import (
	"io"
	"net"
	"syscall"
)

// Read reads at least one byte into p, waiting for it if need be, and takes all
// that fits of what has arrived; with an empty p it waits for nothing. It returns io.EOF after the
// peer's orderly close and all its bytes, and after CloseRead. Bytes that arrived before the connection
// failed are returned before the failure is.
//
// If the peer reset the connection or died, Read fails with ECONNRESET; if it does not answer, with
// ETIMEDOUT; if it broke the protocol, with ECONNABORTED; if the device was removed, with ENODEV; if
// bytes did not arrive as they were sent, with ErrChecksum; at the deadline with os.ErrDeadlineExceeded,
// and after Close with net.ErrClosed.
func (c *Conn) Read(p []byte) (int, error) {
	growCallStack()
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if !c.life.tryLock(dirRead) && !c.life.lock(dirRead) {
		return 0, c.opError(opRead, net.ErrClosed)
	}
	n, err := c.stream.read(p)
	if !c.life.tryUnlock(dirRead) {
		c.exit(c.life.unlock(dirRead))
	}
	if err != nil {
		err = c.opError(opRead, inCall(opRead, err))
	}
	return n, err
}

// WriteTo writes all that arrives to w, until io.EOF, straight from the ring: no
// byte is copied here. w must not keep what it is given. It returns how many bytes
// w took; what it was given and did not take is read by the next Read, and does not have Close reset the
// connection. Errors, also those of w but for io.EOF, come in a *net.OpError of "writeto". Other
// Reads wait until it returns, whatever their deadline.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if !c.life.lock(dirRead) {
		return 0, c.copyError(opWriteTo, c.opError(opRead, net.ErrClosed))
	}
	defer func() { // also if w panics
		c.stream.unpeek()
		c.exit(c.life.unlock(dirRead))
	}()
	n, err = c.writeTo(w)
	return n, c.copyError(opWriteTo, err)
}

func (c *Conn) writeTo(w io.Writer) (total int64, err error) {
	c.stream.releasePeek()
	for {
		a, err := c.stream.await(0, true)
		if err != nil {
			if err == io.EOF {
				return total, nil
			}
			return total, c.opError(opRead, inCall(opRead, err))
		}
		n, err := w.Write(a)
		if n < 0 || n > len(a) {
			return total, errInvalidWrite
		}
		total += int64(n)
		c.stream.consumed(n, true)
		switch {
		case err != nil:
			return total, err
		case n < len(a):
			return total, io.ErrShortWrite
		}
	}
}

// CloseRead ends waiting for data: Reads, also those that wait, return io.EOF when
// nothing has arrived. What has arrived can still be read, as on Linux with TCP.
// The peer is not told; it is held up when the ring is full. Only where this end has shut
// down writing as well does it learn that nobody reads, and its Writes fail with EPIPE. CloseRead
// fails with ENOTCONN when neither end can send any more, and with net.ErrClosed after Close.
func (c *Conn) CloseRead() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if !c.life.incref() {
		return c.opError(opClose, net.ErrClosed)
	}
	err := c.stream.closeRead()
	c.exit(c.life.decref())
	return c.opError(opClose, err)
}
