package rdmanet

import (
	"errors"
	"fmt"
	"io"
	"net"

	pool "github.com/libp2p/go-buffer-pool"
)

// MaxReserve is the most that Reserve gives at once: 64 KiB.
const MaxReserve = sendBlockSize

var errInvalidRead = errors.New("rdmanet: the reader returned an impossible count")

// takeBlock waits for a send block. The caller holds the write lock.
func (w *sendHalf) takeBlock() (*sendBlock, error) {
	if err := w.mayWrite(); err != nil {
		return nil, err
	}
	for {
		var b *sendBlock
		var err error
		w.mu.Lock()
		if w.reap() {
			b, err = w.blocks.take(w.ep, &w.sq)
		}
		w.wantBlock = b == nil && err == nil
		w.mu.Unlock()
		if b != nil || err != nil {
			return b, err
		}
		err = w.stall()
		w.mu.Lock()
		w.wantBlock = false
		w.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

func (w *sendHalf) giveBlock(b *sendBlock) {
	w.mu.Lock()
	w.blocks.give(b)
	w.mu.Unlock()
}

// ReadFrom sends all that it reads from r until io.EOF. r reads straight into
// registered memory, from which the device sends, as long as there is any. It
// returns how many bytes were sent. Other writes of the Conn may come between two
// reads from r. Nothing is read from r while nothing can be sent. Errors, also those
// of r, come in a *net.OpError of "readfrom".
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	for err == nil {
		var n int
		n, err = c.via.readFrom(c, r)
		total += int64(n)
	}
	if err == io.EOF {
		err = nil
	}
	return total, c.copyError(opReadFrom, err)
}

// readFrom does not hold the write lock while r reads, which may take for ever.
func (s *stream) readFrom(c *Conn, r io.Reader) (int, error) {
	if !c.life.lock(dirWrite) {
		return 0, c.opError(opWrite, net.ErrClosed)
	}
	b, err := s.send.takeBlock()
	if err == nil {
		// All else may go while r reads: a Close does not wait for that.
		s.ep.pinned.refs.Add(1)
		defer func() { _ = s.ep.pinned.release() }() // also if r panics
	}
	c.exit(c.life.unlock(dirWrite))
	switch {
	case errors.Is(err, ErrNoMemory):
		return c.readFromScratch(r, scratchSize)
	case err != nil:
		return 0, c.opError(opWrite, inCall(opWrite, err))
	}
	defer s.send.giveBlock(b)
	n, rerr := r.Read(b.buf)
	if n < 0 || n > len(b.buf) {
		return 0, errInvalidRead
	}
	if n > 0 {
		if !c.life.lock(dirWrite) {
			return 0, c.opError(opWrite, net.ErrClosed)
		}
		sent, err := s.send.sendFrom(b, n)
		c.exit(c.life.unlock(dirWrite))
		if err != nil {
			return sent, c.opError(opWrite, inCall(opWrite, err))
		}
	}
	return n, rerr
}

// readFromScratch is readFrom by size bytes of ordinary memory, where there is none to send
// from, or Write copies in any case.
func (c *Conn) readFromScratch(r io.Reader, size int) (int, error) {
	buf := pool.Get(size)
	defer pool.Put(buf)
	n, rerr := r.Read(buf)
	if n < 0 || n > len(buf) {
		return 0, errInvalidRead
	}
	if n > 0 {
		if sent, err := c.Write(buf[:n]); err != nil {
			return sent, err
		}
	}
	return n, rerr
}

const scratchSize = 16 << 10

// Reserve returns n bytes, at most MaxReserve, of registered memory for the caller
// to fill; Commit sends them. It waits if all such memory is being sent. The
// memory is the caller's until Commit, also after a Close in between, and as long
// as the Conn itself is reachable; a second Reserve before the Commit returns the
// same memory. Reserve and Commit are for one goroutine; other goroutines may
// Write meanwhile.
func (c *Conn) Reserve(n int) ([]byte, error) {
	if n < 1 || n > MaxReserve {
		return nil, c.opError(opWrite, fmt.Errorf("cannot reserve %d bytes: choose 1 to %d", n, MaxReserve))
	}
	if !c.life.lock(dirWrite) {
		return nil, c.opError(opWrite, net.ErrClosed)
	}
	buf, err := c.via.reserve(n)
	if err == nil && c.life.isClosed() {
		c.via.dropPins(c) // Close may have looked before
	}
	c.exit(c.life.unlock(dirWrite))
	return buf, c.opError(opWrite, inCall(opWrite, err))
}

func (s *stream) reserve(n int) ([]byte, error) {
	w := &s.send
	if w.reserved == nil {
		var err error
		if w.reserved, err = w.takeBlock(); err != nil {
			return nil, err
		}
	}
	s.ep.pinned.reserve.hold(s.ep.pinned)
	w.reserved.used = n
	return w.reserved.buf[:n:n], nil
}

// Commit sends the first n bytes of what Reserve returned, without copying them,
// and ends the use of that memory; 0 sends nothing. It waits while the peer's ring
// is full and fails as Write does; what was sent before a failure is not told.
func (c *Conn) Commit(n int) error {
	if !c.life.lock(dirWrite) {
		c.via.releaseReserve()
		return c.opError(opWrite, net.ErrClosed)
	}
	err := c.via.commit(n)
	c.exit(c.life.unlock(dirWrite))
	return c.opError(opWrite, inCall(opWrite, err))
}

func (s *stream) releaseReserve() { s.ep.pinned.reserve.release(s.ep.pinned) }

func (s *stream) commit(n int) error {
	b := s.send.reserved
	if !s.ep.pinned.reserve.held.Load() || b == nil {
		return errNothingReserved
	}
	if n < 0 || n > b.used {
		return errCommit(n, b.used)
	}
	var err error
	if n > 0 {
		_, err = s.send.sendFrom(b, n)
	}
	s.send.reserved = nil
	s.send.giveBlock(b)
	s.releaseReserve()
	return err
}

var errNothingReserved = fmt.Errorf("%w: nothing is reserved", ErrReservation)

func errCommit(n, reserved int) error {
	return fmt.Errorf("%w: %d bytes of %d", ErrReservation, n, reserved)
}
