package rdmanet

import (
	"errors"
	"io"
	"net"
	"syscall"
)

var errInvalidWrite = errors.New("rdmanet: the writer returned an impossible count")

// Peek returns the next unread bytes where they lie in the receive ring, without
// copying or consuming them: at least one, waiting for it if need be, and at most
// n, or as many as lie together if n is 0 or less. Where the ring wraps there may
// be fewer than have arrived, and with checksums it is the bytes of one message at most;
// Discard what was used and Peek again. To a Close they are unread.
//
// The slice may be read until the next Discard, Read or WriteTo of this Conn, also
// after a Close in between, and as long as the Conn itself is reachable. It must
// not be written to. Its bytes lie in memory that the peer can write: a hostile
// peer can change them while they are looked at, so copy what is checked before it
// is used. Errors are those of Read.
func (c *Conn) Peek(n int) ([]byte, error) {
	if !c.ok() {
		return nil, syscall.EINVAL
	}
	if !c.life.lock(dirRead) {
		return nil, c.opError(opRead, net.ErrClosed)
	}
	b, err := c.stream.await(n, false)
	if err == nil {
		c.stream.holdPeek()
		if c.life.isClosed() {
			c.stream.dropPins(c) // Close may have looked before
		}
	}
	c.exit(c.life.unlock(dirRead))
	return b, c.opError(opRead, inCall(opRead, err))
}

// Discard consumes n bytes, waiting for those that have not arrived, and returns
// how many it consumed; it ends the use of a slice from Peek, also on a closed
// Conn. n below 0 is syscall.EINVAL. Errors are those of Read, or io.ErrUnexpectedEOF, in a
// *net.OpError, if the stream ends after some of them.
func (c *Conn) Discard(n int) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if !c.life.lock(dirRead) {
		if c.life.isLeft(dirRead) { // else a call that is inside looks at the same memory
			c.stream.releasePeek()
		}
		return 0, c.opError(opRead, net.ErrClosed)
	}
	done, err := c.discard(n, c.stream.releasePeek())
	c.exit(c.life.unlock(dirRead))
	return done, c.opError(opRead, inCall(opRead, err))
}

func (c *Conn) discard(n int, peeked bool) (done int, err error) {
	if n < 0 {
		return 0, invalid("cannot discard a negative number of bytes")
	}
	for done < n {
		a, err := c.stream.await(n-done, false)
		if err != nil {
			if err == io.EOF && done > 0 {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
		c.stream.consumed(len(a), peeked)
		done += len(a)
	}
	return done, nil
}
