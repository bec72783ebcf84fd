package rdmanet

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/rdmanet/go-rdmanet/ring"
)

// copyUnderLock is the most that Read copies while it holds the lock of the receive half: about as long as
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
	n, err := c.via.read(p)
	c.exit(c.life.unlock(dirRead))
	if err != nil {
		err = c.opError(opRead, inCall(opRead, err))
	}
	return n, err
}

func (r *receiveHalf) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.ep.pinned.peek.release(r.ep.pinned)
	if r.waiter.expired() {
		return 0, os.ErrDeadlineExceeded
	}
	for {
		r.mu.Lock()
		r.borrowed = 0 // what Peek has given out is not any more
		r.pollFor(len(p))
		if n := min(r.ring.Buffered(), len(p)); n > 0 {
			if r.s.term.closed() { // the peer is told that it is unread
				r.mu.Unlock()
				return 0, net.ErrClosed
			}
			if r.sums != nil {
				n, err := r.readFrames(p)
				r.mu.Unlock()
				return n, err
			}
			if n > copyUnderLock {
				a, b := r.unread(n)
				r.borrowed = uint32(n)
				r.mu.Unlock()
				copy(p[copy(p, a):], b)
				r.mu.Lock()
				r.borrowed = 0
			} else {
				a, b := r.unread(n)
				copy(p[copy(p, a):], b)
			}
			r.stats.copied += uint64(n)
			r.consume(n)
			r.mu.Unlock()
			return n, nil
		}
		err := r.readEnd()
		r.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if err := r.wait(); err != nil {
			return 0, err
		}
	}
}

// wait waits for something to read, or the end.
func (r *receiveHalf) wait() error {
	if !r.ep.synchronous {
		// The answer that is waited for may be one to what was gathered.
		r.s.send.mu.Lock()
		r.s.send.sendGathered()
		r.s.send.mu.Unlock()
	}
	return r.waiter.wait(r.s, dirRead, r)
}

// pollFor polls, if less than want is buffered. The caller holds mu and the read lock.
func (r *receiveHalf) pollFor(want int) {
	buffered := r.ring.Buffered()
	if buffered == 0 {
		r.pace.empty = true
		if r.pace.gap > 0 {
			r.mu.Unlock()
			r.pace.pause()
			r.mu.Lock()
		}
	}
	if buffered < want {
		r.progress()
	}
	if n := r.ring.Buffered(); n > 0 && r.pace.empty && r.pace.found(r.stats.messages, n) {
		r.s.send.mu.Lock()
		sent := r.s.send.stats.messages
		r.s.send.mu.Unlock()
		r.pace.start(sent)
	}
}

// unread returns the first n unread bytes in the ring, in two pieces where they
// wrap. The caller holds mu; the bytes stay until they are consumed.
func (r *receiveHalf) unread(n int) (a, b []byte) {
	sa, sb := r.ring.Readable()
	a = r.ep.data[sa.Off:][:min(int(sa.Len), n)]
	if rest := n - len(a); rest > 0 {
		b = r.ep.data[sb.Off:][:min(int(sb.Len), rest)]
	}
	return a, b
}

// consume gives n bytes of the ring back to the peer. The caller holds mu.
func (r *receiveHalf) consume(n int) {
	if err := r.ring.Consume(n); err != nil {
		r.s.fail(syscall.ECONNABORTED, err)
		return
	}
	if r.ring.CreditDue() && r.s.term.peerListens() {
		r.returnCredit()
	}
}

// taken is consume for n bytes of the stream that await returned.
func (r *receiveHalf) taken(n int) {
	if r.sums != nil {
		used := r.sums.frames.Take(n)
		r.stats.framing += uint64(used - n)
		n = used
	}
	r.consume(n)
}

// readEnd says why nothing more will be read, nil if something may. The caller
// holds mu, has polled, and found nothing buffered.
func (r *receiveHalf) readEnd() error {
	err := r.s.term.readErr()
	if err == io.EOF && r.sums != nil {
		if err := r.checkEnd(); err != nil {
			return err
		}
	}
	return err
}

// try polls once and reports whether there is something to read, or never will be. It is
// for the holder of the read lock.
func (r *receiveHalf) try() bool {
	if r.s.term.ended(dirRead) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress()
	if r.ring.Buffered() == 0 {
		r.pace.missed()
	}
	return r.readable()
}

// readable reports whether a Read need not wait. The caller holds mu.
func (r *receiveHalf) readable() bool { return r.ring.Buffered() > 0 || r.s.term.received() }

// beforeSleep: a credit, bytes or the end of the stream may wait for room. The peer may be
// asleep waiting for them, so that nobody else would wake this end.
func (r *receiveHalf) beforeSleep() (needsSends bool) {
	r.mu.Lock()
	credit := r.ring.CreditDue()
	r.mu.Unlock()
	w := &r.s.send
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushPending()
	return (credit || w.owes()) && !w.sq.idle()
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
		c.via.unlend()
		c.exit(c.life.unlock(dirRead))
	}()
	n, err = c.writeTo(w)
	return n, c.copyError(opWriteTo, err)
}

func (c *Conn) writeTo(w io.Writer) (total int64, err error) {
	c.via.releasePeek()
	for {
		a, err := c.via.await(0)
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
		c.via.consumed(n, true)
		switch {
		case err != nil:
			return total, err
		case n < len(a):
			return total, io.ErrShortWrite
		}
	}
}

func (s *stream) consumed(n int, placed bool) {
	s.recv.mu.Lock()
	defer s.recv.mu.Unlock()
	s.recv.borrowed = 0
	if placed {
		s.recv.stats.placed += uint64(n)
	}
	s.recv.taken(n)
}

func (s *stream) unlend() {
	s.recv.mu.Lock()
	defer s.recv.mu.Unlock()
	s.recv.borrowed = 0
}

// await waits for unread bytes and returns those that lie together. At most limit, if that
// is above 0; otherwise they are lent until the caller says that they are taken.
func (r *receiveHalf) await(limit int) ([]byte, error) {
	if r.waiter.expired() {
		return nil, os.ErrDeadlineExceeded
	}
	for {
		r.mu.Lock()
		r.pollFor(max(limit, 1))
		if n := r.ring.Buffered(); n > 0 {
			if r.s.term.closed() { // the peer is told that it is unread
				r.mu.Unlock()
				return nil, net.ErrClosed
			}
			if r.sums != nil {
				var err error
				if n, err = r.openFrame(); err != nil {
					r.mu.Unlock()
					return nil, err
				}
			}
			if limit > 0 {
				n = min(n, limit)
			}
			a, _ := r.unread(n)
			if limit == 0 {
				r.borrow(len(a))
			}
			r.mu.Unlock()
			return a, nil
		}
		err := r.readEnd()
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if err := r.wait(); err != nil {
			return nil, err
		}
	}
}

// borrow notes that so many bytes of the stream are as good as read: a Close meanwhile leaves
// none of them unread. The caller holds mu.
func (r *receiveHalf) borrow(n int) {
	if r.sums != nil {
		n = r.sums.frames.Takes(n)
	}
	r.borrowed = uint32(n)
}

// CloseRead ends waiting for data: Reads, also those that wait, return io.EOF when
// nothing has arrived. What has arrived can still be read, as on Linux with TCP.
// The peer is not told; it is held up when the ring is full. Only where this end has shut
// down writing as well does it learn that nobody reads, and its Writes fail with EPIPE.
func (c *Conn) CloseRead() error {
	if !c.life.incref() {
		return c.opError(opClose, net.ErrClosed)
	}
	err := c.via.closeRead()
	c.exit(c.life.decref())
	return c.opError(opClose, err)
}

func (s *stream) closeRead() error {
	s.recv.takeIn()
	if s.term.over() {
		return os.NewSyscallError("shutdown", syscall.ENOTCONN)
	}
	first := s.term.shutRead()
	s.endWait(dirRead)
	s.send.mu.Lock()
	defer s.send.mu.Unlock()
	if first && s.term.writeShut() && s.term.mayFlush() {
		s.send.end(ring.KindClose)
	}
	return nil
}
