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
		n, err = c.readFrom(r)
		total += int64(n)
	}
	if err == io.EOF {
		err = nil
	}
	return total, c.copyError(opReadFrom, err)
}

// readFrom sends what one Read of r gives. The write lock is not held while r
// reads, which may take for ever.
func (c *Conn) readFrom(r io.Reader) (int, error) {
	if !c.life.lock(dirWrite) {
		return 0, c.opError(opWrite, net.ErrClosed)
	}
	b, err := c.send.takeBlock()
	if err == nil {
		// All else may go while r reads: a Close does not wait for that.
		c.ep.pinned.refs.Add(1)
		defer func() { _ = c.ep.pinned.release() }() // also if r panics
	}
	c.exit(c.life.unlock(dirWrite))
	switch {
	case errors.Is(err, ErrNoMemory):
		return c.readFromScratch(r)
	case err != nil:
		return 0, c.opError(opWrite, inCall(opWrite, err))
	}
	defer c.send.giveBlock(b)
	n, rerr := r.Read(b.buf)
	if n < 0 || n > len(b.buf) {
		return 0, errInvalidRead
	}
	if n > 0 {
		if !c.life.lock(dirWrite) {
			return 0, c.opError(opWrite, net.ErrClosed)
		}
		sent, err := c.send.sendFrom(b, n)
		c.exit(c.life.unlock(dirWrite))
		if err != nil {
			return sent, c.opError(opWrite, inCall(opWrite, err))
		}
	}
	return n, rerr
}

// readFromScratch is readFrom where there is no memory to send from: Write does
// without, slowly.
func (c *Conn) readFromScratch(r io.Reader) (int, error) {
	buf := pool.Get(scratchSize)
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
	var err error
	if c.send.reserved == nil {
		c.send.reserved, err = c.send.takeBlock()
	}
	var buf []byte
	if err == nil {
		c.ep.pinned.reserve.hold(c.ep.pinned)
		if c.term.closed() {
			c.dropPins() // Close may have looked before
		}
		c.send.reserved.used = n
		buf = c.send.reserved.buf[:n:n]
	}
	c.exit(c.life.unlock(dirWrite))
	return buf, c.opError(opWrite, inCall(opWrite, err))
}

// Commit sends the first n bytes of what Reserve returned, without copying them,
// and ends the use of that memory; 0 sends nothing. It waits while the peer's ring
// is full and fails as Write does; what was sent before a failure is not told.
func (c *Conn) Commit(n int) error {
	locked := c.life.lock(dirWrite)
	held := c.ep.pinned.reserve.held.Load()
	if !locked {
		c.ep.pinned.reserve.release(c.ep.pinned)
		return c.opError(opWrite, net.ErrClosed)
	}
	var err error
	switch b := c.send.reserved; {
	case !held || b == nil:
		err = fmt.Errorf("%w: nothing is reserved", ErrReservation)
	case n < 0 || n > b.used:
		err = fmt.Errorf("%w: %d bytes of %d", ErrReservation, n, b.used)
	default:
		if n > 0 {
			_, err = c.send.sendFrom(b, n)
		}
		c.send.reserved = nil
		c.send.giveBlock(b)
		c.ep.pinned.reserve.release(c.ep.pinned)
	}
	c.exit(c.life.unlock(dirWrite))
	return c.opError(opWrite, inCall(opWrite, err))
}
