package rdmanet

import (
	"errors"
	"syscall"
)

// How a connection fails. All of these may be called with or without locks.

// fail ends the connection with a cause; the first one counts. It wakes all who wait.
func (c *Conn) fail(errno syscall.Errno, detail error) {
	c.setCause(errno, detail)
	if c.term.fail() {
		c.disconnect()
		c.wake(dirRead)
		c.wake(dirWrite)
	}
}

// failAfterDrain is fail for a connection that can send no more, while what arrived before
// may still lie in the receive queue: it fails when that has told all, by its flush.
func (c *Conn) failAfterDrain(errno syscall.Errno, detail error) {
	c.setCause(errno, detail)
	c.endSending(false)
}

// failGone fails a connection whose peer has gone.
func (c *Conn) failGone() { c.fail(c.term.goneErrno(), ErrPeerGone) }

// endSending notes that nothing can be sent any more. How the connection ends, the receive
// queue tells; unanswered is for what it then says of a peer that has gone.
func (c *Conn) endSending(unanswered bool) {
	c.term.endSending(unanswered)
	c.disconnect()
}

// setCause notes why the connection is going to fail, unless that is known.
func (c *Conn) setCause(errno syscall.Errno, detail error) {
	if c.term.setCause(newConnError(errno, detail)) {
		c.countFailure(errno)
	}
}

// disconnect sees to it that the peer learns of the end, unless it was told, and that what
// is posted here comes back.
func (c *Conn) disconnect() {
	if c.term.has(termToldCorrupt) || c.outOfReach() || !c.term.disconnect() {
		return
	}
	// Not here: it may have to wait for a peer that does not listen, and locks are held.
	go c.ep.abort()
}

// outOfReach reports whether the connection fails because the network, or the peer, has gone.
// Then the QP is in ERR or given up. To disconnect would make a reset of the peer's own
// timeout where one direction still works; and a goodbye over a link that is down takes
// soft-RoCE's connection manager down with it, for all connections. Close disconnects.
func (c *Conn) outOfReach() bool {
	cause := c.term.err()
	return !c.ep.sameHost && (cause == nil || errors.Is(cause, ErrPeerGone))
}
