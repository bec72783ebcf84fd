package rdmanet

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/rdmanet/go-rdmanet/ring"
)

// copyUnderLock is the most that Read copies while it holds rx: about as long as
// letting go of the lock and taking it again costs.
const copyUnderLock = 4 << 10

// Read reads at least one byte into p, waiting for it if need be, and takes all
// that fits of what has arrived. It returns io.EOF after the peer's orderly close
// and all its bytes. Bytes that arrived before the connection failed are returned
// before the failure is.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.life.lock(dirRead) {
		return 0, c.opError(opRead, net.ErrClosed)
	}
	n, err := c.read(p)
	c.exit(c.life.unlock(dirRead))
	if err != nil {
		err = c.opError(opRead, inCall(opRead, err))
	}
	return n, err
}

func (c *Conn) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.ep.pinned.peek.release(c.ep.pinned)
	if c.expired(dirRead) {
		return 0, os.ErrDeadlineExceeded
	}
	for {
		c.rx.Lock()
		c.look(len(p))
		if n := min(c.recv.Buffered(), len(p)); n > 0 {
			if c.term.closed() { // the peer is told that it is unread
				c.rx.Unlock()
				return 0, net.ErrClosed
			}
			if c.sums != nil {
				n, err := c.readFrames(p)
				c.rx.Unlock()
				return n, err
			}
			if n > copyUnderLock {
				a, b := c.unread(n)
				c.lent = uint32(n)
				c.rx.Unlock()
				copy(p[copy(p, a):], b)
				c.rx.Lock()
				c.lent = 0
			} else {
				a, b := c.unread(n)
				copy(p[copy(p, a):], b)
			}
			c.rxStats.copied += uint64(n)
			c.consume(n)
			c.rx.Unlock()
			return n, nil
		}
		err := c.readEnd()
		c.rx.Unlock()
		if err != nil {
			return 0, err
		}
		if err := c.wait(dirRead); err != nil {
			return 0, err
		}
	}
}

// look polls, if less than want is buffered. The caller holds rx and the read lock.
func (c *Conn) look(want int) {
	buffered := c.recv.Buffered()
	if buffered == 0 {
		c.pace.empty = true
		if c.pace.gap > 0 {
			c.rx.Unlock()
			c.pace.pause()
			c.rx.Lock()
		}
	}
	if buffered < want {
		c.progress()
	}
	if n := c.recv.Buffered(); n > 0 && c.pace.empty && c.pace.found(c.rxStats.messages, n) {
		c.tx.Lock()
		sent := c.txStats.messages
		c.tx.Unlock()
		c.pace.start(sent)
	}
}

// unread returns the first n unread bytes in the ring, in two pieces where they
// wrap. The caller holds rx; the bytes stay until they are consumed.
func (c *Conn) unread(n int) (a, b []byte) {
	sa, sb := c.recv.Readable()
	a = c.ep.data[sa.Off:][:min(int(sa.Len), n)]
	if rest := n - len(a); rest > 0 {
		b = c.ep.data[sb.Off:][:min(int(sb.Len), rest)]
	}
	return a, b
}

// consume gives n bytes of the ring back to the peer. The caller holds rx.
func (c *Conn) consume(n int) {
	if err := c.recv.Consume(n); err != nil {
		c.fail(syscall.ECONNABORTED, err)
		return
	}
	if c.recv.CreditDue() && c.term.peerListens() {
		c.returnCredit()
	}
}

// taken is consume for n bytes of the stream that await returned.
func (c *Conn) taken(n int) {
	if c.sums != nil {
		used := c.sums.frames.Take(n)
		c.rxStats.framing += uint64(used - n)
		n = used
	}
	c.consume(n)
}

// readEnd says why nothing more will be read, nil if something may. The caller
// holds rx, has polled, and found nothing buffered.
func (c *Conn) readEnd() error {
	err := c.term.readErr()
	if err == io.EOF && c.sums != nil {
		if err := c.checkEnd(); err != nil {
			return err
		}
	}
	return err
}

// tryRead polls once and says whether the reader has something to do.
func (c *Conn) tryRead() bool {
	if c.term.ended(dirRead) {
		return true
	}
	c.rx.Lock()
	defer c.rx.Unlock()
	c.progress()
	if c.recv.Buffered() == 0 {
		c.pace.misses++
	}
	return c.recv.Buffered() > 0 || c.term.received() || c.busy.Load()
}

// armRead is tryRead around an arming of the CQ.
func (c *Conn) armRead() bool {
	if c.tryRead() {
		return true
	}
	if err := c.ep.recvCQ.ReqNotify(false); err != nil {
		c.fail(syscall.ECONNABORTED, err)
		return true
	}
	if c.owing() {
		if err := c.ep.sendCQ.ReqNotify(false); err != nil {
			c.fail(syscall.ECONNABORTED, err)
			return true
		}
		c.owing() // the room may have come before the CQ was armed
	}
	return c.tryRead()
}

// WriteTo writes all that arrives to w, until io.EOF, straight from the ring: no
// byte is copied here. w must not keep what it is given. It returns how many bytes
// w took. Errors, also those of w, come in a *net.OpError of "writeto". Other Reads wait
// until it returns.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	if !c.life.lock(dirRead) {
		return 0, c.copyError(opWriteTo, c.opError(opRead, net.ErrClosed))
	}
	defer func() { // also if w panics
		c.rx.Lock()
		c.lent = 0
		c.rx.Unlock()
		c.exit(c.life.unlock(dirRead))
	}()
	n, err = c.writeTo(w)
	return n, c.copyError(opWriteTo, err)
}

func (c *Conn) writeTo(w io.Writer) (total int64, err error) {
	c.ep.pinned.peek.release(c.ep.pinned)
	for {
		a, err := c.await(0)
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
		c.rx.Lock()
		c.lent = 0
		c.rxStats.placed += uint64(n)
		c.taken(n)
		c.rx.Unlock()
		switch {
		case err != nil:
			return total, err
		case n < len(a):
			return total, io.ErrShortWrite
		}
	}
}

// await waits for unread bytes and returns those that lie together. At most limit, if that
// is above 0; otherwise they are lent until the caller says that they are taken.
func (c *Conn) await(limit int) ([]byte, error) {
	if c.expired(dirRead) {
		return nil, os.ErrDeadlineExceeded
	}
	for {
		c.rx.Lock()
		c.look(max(limit, 1))
		if n := c.recv.Buffered(); n > 0 {
			if c.term.closed() { // the peer is told that it is unread
				c.rx.Unlock()
				return nil, net.ErrClosed
			}
			if c.sums != nil {
				var err error
				if n, err = c.openFrame(); err != nil {
					c.rx.Unlock()
					return nil, err
				}
			}
			if limit > 0 {
				n = min(n, limit)
			}
			a, _ := c.unread(n)
			if limit == 0 {
				c.lend(len(a))
			}
			c.rx.Unlock()
			return a, nil
		}
		err := c.readEnd()
		c.rx.Unlock()
		if err != nil {
			return nil, err
		}
		if err := c.wait(dirRead); err != nil {
			return nil, err
		}
	}
}

// lend notes that so many bytes of the stream are as good as read: a Close meanwhile leaves
// none of them unread. The caller holds rx.
func (c *Conn) lend(n int) {
	if c.sums != nil {
		n = c.sums.frames.Takes(n)
	}
	c.lent = uint32(n)
}

// CloseRead ends waiting for data: Reads, also those that wait, return io.EOF when
// nothing has arrived. What has arrived can still be read, as on Linux with TCP.
// The peer is not told; it is held up when the ring is full. Only where this end has shut
// down writing as well does it learn that nobody reads, and its Writes fail with EPIPE.
func (c *Conn) CloseRead() error {
	if !c.life.incref() {
		return c.opError(opClose, net.ErrClosed)
	}
	var err error
	if c.over() {
		err = os.NewSyscallError("shutdown", syscall.ENOTCONN)
	} else {
		first := c.term.shutRead()
		c.wake(dirRead)
		c.tx.Lock()
		if first && c.term.writeShut() && c.term.mayFlush() {
			c.end(ring.KindClose)
		}
		c.tx.Unlock()
	}
	c.exit(c.life.decref())
	return c.opError(opClose, err)
}
