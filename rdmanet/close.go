package rdmanet

import (
	"net"
	"time"

	"github.com/rdmanet/go-rdmanet/ring"
)

// defaultDrain bounds how long a closed connection waits for its last requests to
// complete, on devices where a Write returns before its bytes have arrived.
const defaultDrain = 10 * time.Second

// Close closes the connection. Calls that wait return net.ErrClosed. What was
// written arrives before the peer's Reads return io.EOF; if bytes were received
// that nobody read, or SetLinger(0) was called, the connection is reset instead,
// as TCP's is. Close does not wait for the peer but as SetLinger says. A second
// Close fails with net.ErrClosed.
//
// Unlike TCP's, what has not arrived yet is this process's to deliver: over a network
// a program that ends right after Close loses it, unless SetLinger has Close wait. What
// the peer has not taken within ten seconds, or the time of SetLinger, is lost.
func (c *Conn) Close() error {
	if !c.life.close() {
		return c.opError(opClose, net.ErrClosed)
	}
	c.term.close()
	c.wake(dirRead)
	c.wake(dirWrite)
	c.stopKeepAlive()
	c.sayGoodbye()
	c.stopTick()
	c.dropPins()
	c.exit(c.life.decref())
	if sec := c.linger.Load(); sec > 0 {
		limit := time.NewTimer(time.Duration(sec) * time.Second)
		defer limit.Stop()
		select {
		case <-c.torn:
		case <-limit.C:
		}
	}
	return nil
}

// sayGoodbye ends the stream towards the peer.
func (c *Conn) sayGoodbye() {
	c.rx.Lock()
	c.progress()
	unread := c.recv.Buffered() > int(c.lent)
	c.rx.Unlock()
	kind := ring.KindClose
	if unread || c.linger.Load() == 0 {
		kind = ring.KindReset
	}
	c.tx.Lock()
	c.term.shutWrite()
	if !c.term.broken() {
		c.end(kind)
	}
	c.tx.Unlock()
}

// exit is called by whoever drops a reference, and destroys with the last one.
func (c *Conn) exit(last bool) {
	if !last {
		return
	}
	if c.ep.sameHost && c.drained() {
		c.teardown()
		return
	}
	// The requests read memory that teardown takes away, and the peer has not got
	// their bytes yet. And a device may wait for a network that does not move: only
	// the software device's teardown is quick in any case.
	go func() {
		c.drain()
		c.teardown()
	}()
}

// drained says that nothing is left to send. It reaps what has completed.
func (c *Conn) drained() bool {
	if !c.term.peerTakes() {
		return true
	}
	c.tx.Lock()
	defer c.tx.Unlock()
	c.flushPending()
	if c.pending == ring.KindReset {
		// Going without a word says as much, and nothing else is to arrive.
		c.pending = 0
		if c.gathered != nil {
			c.gathered.n = 0
		}
	}
	// Also a device that takes the source at the post may deliver later, as the
	// first message of all.
	if err := c.sq.reap(); err != nil {
		return true
	}
	return c.pending == 0 && c.gatheredBytes() == 0 && c.sq.flushed()
}

// drain waits until nothing is left to send, for a bounded time. No call is inside
// the Conn any more, so the channel's write direction is free.
func (c *Conn) drain() {
	limit := defaultDrain
	if sec := c.linger.Load(); sec > 0 {
		limit = time.Duration(sec) * time.Second
	}
	end := time.Now().Add(limit)
	c.ep.setDeadline(dirWrite, end)
	for !c.drainStep() && time.Now().Before(end) {
		err := c.ep.wait(dirWrite, func() bool {
			return c.drainStep() || c.busy.Load() ||
				c.ep.recvCQ.ReqNotify(false) != nil || c.ep.sendCQ.ReqNotify(false) != nil ||
				c.drainStep() || c.busy.Load()
		})
		if err != nil {
			return // the deadline has passed, or nobody can wait any more
		}
	}
}

func (c *Conn) drainStep() bool {
	c.rx.Lock()
	c.progress()
	c.rx.Unlock()
	return c.drained()
}

// teardown destroys what the connection is made of. It runs once, when no call is
// inside the Conn.
func (c *Conn) teardown() {
	c.ep.abort()
	c.ep.destroy(&c.blocks)
	live.remove(c)
	close(c.torn)
}
