package rdmanet

import (
	"net"
	"syscall"
)

// Write sends p and returns when all of it is on its way: in the peer's ring, or
// copied to memory that the device sends from. It waits while the peer's ring is
// full. p may be changed as soon as Write has returned.
//
// If the peer has closed, or this end was closed for writing, Write fails with EPIPE; if the peer
// reset the connection or died, with ECONNRESET; if it does not answer, with ETIMEDOUT; if it
// broke the protocol, with ECONNABORTED; if the device was removed, with ENODEV; at the deadline
// with os.ErrDeadlineExceeded, and after Close with net.ErrClosed. Then it returns how many of
// p's first bytes were sent before that.
//
// As over TCP the first Write after the peer's Close succeeds, if it is of at most 64 KiB and no
// Read has returned io.EOF, and so does one that waits while the peer closes, with at most 64 KiB
// of it left. A Write of nothing succeeds until another was refused.
func (c *Conn) Write(p []byte) (int, error) {
	growCallStack()
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if !c.life.tryLock(dirWrite) && !c.life.lock(dirWrite) {
		return 0, c.opError(opWrite, net.ErrClosed)
	}
	n, err := c.stream.write(p)
	if !c.life.tryUnlock(dirWrite) {
		c.exit(c.life.unlock(dirWrite))
	}
	if err != nil {
		err = c.opError(opWrite, inCall(opWrite, err))
	}
	return n, err
}

// CloseWrite ends the stream to the peer, whose Reads return io.EOF after all
// that was written. Reading goes on. It fails with ENOTCONN when neither end can send any more, as
// after a reset and after a Write behind the peer's Close, and with net.ErrClosed after Close.
func (c *Conn) CloseWrite() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if !c.life.incref() {
		return c.opError(opClose, net.ErrClosed)
	}
	err := c.stream.closeWrite()
	c.exit(c.life.decref())
	return c.opError(opClose, err)
}
