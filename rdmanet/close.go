package rdmanet

import (
	"net"
	"runtime"
	"syscall"
	"time"
)

// defaultDrain bounds how long a closed connection waits for its last requests to
// complete, on devices where a Write returns before its bytes have arrived.
const defaultDrain = 10 * time.Second

// Close closes the connection. Calls that wait return net.ErrClosed. What was
// written arrives before the peer's Reads return io.EOF; if bytes were received
// that nobody read, or SetLinger(0) was called, the connection is reset instead,
// as TCP's is. Close does not wait for the peer but as SetLinger says, or where so many
// connections are dialled and closed that a process of this host falls behind with their ends:
// then for ten seconds at most. A second Close fails with net.ErrClosed.
//
// Unlike TCP's, what has not arrived yet is this process's to deliver: over a network
// a program that ends right after Close loses it, unless SetLinger has Close wait. What
// the peer has not taken within ten seconds, or the time of SetLinger, is lost.
func (c *Conn) Close() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if !c.life.close() {
		return c.opError(opClose, net.ErrClosed)
	}
	runtime.SetFinalizer(c.guard, nil)
	c.stream.shut(c.linger.Load() == 0)
	c.stream.dropPins(c)
	c.exit(c.life.decref())
	switch sec := c.linger.Load(); {
	case sec < 0:
		c.stream.s.AwaitEnd()
	case sec > 0:
		limit := time.NewTimer(time.Duration(sec) * time.Second)
		defer limit.Stop()
		select {
		case <-c.done():
		case <-limit.C:
		}
	}
	return nil
}

// exit is called by whoever drops a reference, and destroys with the last one.
func (c *Conn) exit(last bool) {
	if !last {
		return
	}
	c.finish(c.drainLimit())
}
