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
	c.via.shut(c.linger.Load() == 0)
	c.via.dropPins(c)
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

func (s *stream) shut(reset bool) {
	s.term.close()
	s.wake()
	s.stopKeepAlive()
	s.sayGoodbye(reset)
	s.send.stopTick()
}

// sayGoodbye ends the stream towards the peer: by a reset, if that is to be or bytes are unread.
func (s *stream) sayGoodbye(reset bool) {
	s.recv.mu.Lock()
	s.recv.progress()
	unread := s.recv.ring.Buffered() > int(s.recv.borrowed)
	s.recv.mu.Unlock()
	kind := ring.KindClose
	if unread || reset {
		kind = ring.KindReset
	}
	s.send.mu.Lock()
	s.term.shutWrite()
	if !s.term.broken() {
		s.send.end(kind)
	}
	s.send.mu.Unlock()
}

// A Conn owns its stream.
func (c *Conn) enter() bool { return c.life.incref() }
func (c *Conn) leave()      { c.exit(c.life.decref()) }

// exit is called by whoever drops a reference, and destroys with the last one.
func (c *Conn) exit(last bool) {
	if !last {
		return
	}
	c.via.finish(c.drainLimit(), c)
}

func (s *stream) finish(linger time.Duration, c *Conn) {
	if s.ep.sameHost && s.settle() {
		s.teardown()
		c.gone()
		return
	}
	// The requests read memory that teardown takes away, and the peer has not got
	// their bytes yet. And a device may wait for a network that does not move: only
	// the software device's teardown is quick in any case.
	go func() {
		s.drain(linger)
		s.teardown()
		c.gone()
	}()
}

// drain waits until nothing is left to send, for a bounded time. No call is inside
// the Conn any more, so the channel's write direction is free.
func (s *stream) drain(limit time.Duration) {
	end := time.Now().Add(limit)
	s.ep.setDeadline(dirWrite, end)
	for d := (draining{s}); !d.try() && time.Now().Before(end); {
		if s.sleep(dirWrite, d) != nil {
			return // the deadline has passed, or nobody can wait any more
		}
	}
}

// draining is the condition that nothing is left to send.
type draining struct{ s *stream }

func (d draining) try() bool {
	d.s.recv.takeIn()
	return d.s.settle()
}

func (d draining) beforeSleep() (needsSends bool) { return true }

// settle sends what it can of what a closed connection owes, and reports whether that was
// all and has left.
func (s *stream) settle() bool {
	if !s.term.peerTakes() {
		return true
	}
	w := &s.send
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushPending()
	if w.pending == ring.KindReset {
		// Going without a word says as much, and nothing else is to arrive.
		w.pending = 0
		if w.gathered != nil {
			w.gathered.n = 0
		}
	}
	// Also a device that takes the source at the post may deliver later, as the
	// first message of all.
	if err := w.sq.reap(); err != nil {
		return true
	}
	return !w.owes() && w.sq.flushed()
}

// teardown destroys what the connection is made of. It runs once, when no call is
// inside the Conn.
func (s *stream) teardown() {
	s.ep.abort()
	s.ep.destroy(&s.send.blocks)
}
