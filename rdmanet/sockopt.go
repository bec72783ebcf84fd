package rdmanet

import (
	"math"
	"net"
	"syscall"
	"time"
)

// set runs f if the connection is open.
func (c *Conn) set(f func()) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if !c.life.incref() {
		return c.opError(opSet, net.ErrClosed)
	}
	if f != nil {
		f()
	}
	c.exit(c.life.decref())
	return nil
}

// maxLinger is the longest linger time in seconds: TCP's type, and well within a
// time.Duration.
const maxLinger = math.MaxInt32

// SetLinger sets what Close does about bytes that have not arrived: below 0, the
// default, Close waits as its own comment says, and they are sent on in the background for at most
// ten seconds; 0 resets the connection; above 0 Close waits for them for at most so many seconds, after
// which they are given up and Close returns nil.
func (c *Conn) SetLinger(sec int) error {
	return c.set(func() { c.linger.Store(int32(min(max(sec, -1), maxLinger))) })
}

// SetNoDelay is accepted and changes nothing: no Write is ever delayed.
func (c *Conn) SetNoDelay(bool) error { return c.set(nil) }

// SetBusyPoll sets how long a Read or Write that has to wait polls the device before
// it sleeps, as SO_BUSY_POLL does for a socket: it saves the wake-up and takes a
// processor meanwhile.
//
//   - Above 0 it polls for d.
//   - With 0, the default, it polls for 50 microseconds, and for up to 200 where the peer has much to read
//     before it can answer, as long as what it waits for mostly comes in that time. Where it does not, and the
//     peer is on this host, it polls while other goroutines have something to do, if that pays.
//   - Below 0 it never polls.
//
// At most as many goroutines poll for longer than a few microseconds as there are processors, and with
// one processor none does. What wakes a Read that sleeps may be for another connection: unless d is below 0 it
// then polls on for the others, for 50 microseconds at a time, as long as that pays. With 0, and the peer on
// this host, a Read may begin to poll 12 microseconds late where small messages come by the thousand, close
// upon one another, and nothing is sent: it takes many of them at once.
func (c *Conn) SetBusyPoll(d time.Duration) error {
	return c.set(func() { c.stream.setBusyPoll(d) })
}

// SetReadBuffer asks for a receive ring of at least so many bytes, from 4 KiB up to the bound of the
// ring, MaxReadBuffer; it does not become smaller afterwards. As with TCP the system may give less,
// where memory is short. Stats tells the size.
func (c *Conn) SetReadBuffer(bytes int) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if c.life.isClosed() {
		return c.setClosed()
	}
	return c.set(func() { c.stream.growReadBuffer(bytes) })
}

// SetWriteBuffer is accepted and changes nothing: what is written goes to the
// peer's ring, whose size is the peer's to choose.
func (c *Conn) SetWriteBuffer(int) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if c.life.isClosed() {
		return c.setClosed()
	}
	return c.set(nil)
}
