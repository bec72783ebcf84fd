package rdmanet

import (
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rdmanet/go-rdmanet/ring"
)

// Write sends p and returns when all of it is on its way: in the peer's ring, or
// copied to memory that the device sends from. It waits while the peer's ring is
// full. p may be changed as soon as Write has returned.
//
// On a network small Writes that follow each other faster than the device sends them may
// go in one message, which is sent when the device has done with those before or a Read
// begins to wait, and if the peer has room at the latest two milliseconds after the last
// of them.
//
// If the peer has closed, or this end was closed for writing, Write fails with EPIPE; if
// the peer reset the connection or died, with ECONNRESET; if it does not answer, with
// ETIMEDOUT; if it broke the protocol, with ECONNABORTED; if the device was removed, with
// ENODEV; at the deadline with os.ErrDeadlineExceeded, and after Close with net.ErrClosed.
// Then it returns how many of p's first bytes were sent before that.
func (c *Conn) Write(p []byte) (int, error) {
	if !c.life.lock(dirWrite) {
		return 0, c.opError(opWrite, net.ErrClosed)
	}
	n, err := c.write(p)
	c.exit(c.life.unlock(dirWrite))
	if err != nil {
		err = c.opError(opWrite, inCall(opWrite, err))
	}
	return n, err
}

// write is Write for the holder of the write lock.
func (c *Conn) write(p []byte) (n int, err error) {
	if err := c.mayWrite(); err != nil {
		return 0, err
	}
	for n < len(p) {
		sent := c.sendSome(p[n:], n == 0)
		n += sent
		if sent == 0 {
			if err := c.stall(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// mayWrite says why a Write must fail now.
func (c *Conn) mayWrite() error {
	if c.expired(dirWrite) {
		return os.ErrDeadlineExceeded
	}
	return c.term.writeErr()
}

// sendSome sends one message of p's first bytes and returns how many those were;
// 0 if there is no room for any. whole says that p is all that a Write was given.
func (c *Conn) sendSome(p []byte, whole bool) int {
	c.tx.Lock()
	defer c.tx.Unlock()
	if !c.term.maySend() {
		return 0
	}
	if c.sums != nil {
		return c.sendFrame(p)
	}
	if !c.ep.synchronous {
		if whole && c.gather(p) {
			return len(p)
		}
		if !c.sendGathered() {
			return 0
		}
	}
	g := c.send.Next(min(len(p), c.chunk))
	if g.N == 0 || !c.room() {
		return 0
	}
	if c.ep.synchronous || g.N <= c.ep.inline {
		return c.sendInline(p, g)
	}
	return c.sendStaged(p)
}

// sendInline sends the message that g grants with p's bytes in the requests. The
// caller holds tx.
func (c *Conn) sendInline(p []byte, g ring.Grant) int {
	if !c.postData(g, source{bytes: p, inline: true}, false) {
		return 0
	}
	if c.ep.synchronous {
		c.txStats.placed += uint64(g.N)
	} else {
		c.txStats.copied += uint64(g.N)
	}
	return g.N
}

// sendStaged copies p's first bytes to registered memory and sends them from
// there. The caller holds tx and has seen room for at least one byte.
func (c *Conn) sendStaged(p []byte) int {
	b, err := c.currentBlock()
	if err != nil {
		return c.sendInline(p, c.send.Next(min(len(p), c.chunk, c.ep.inline)))
	}
	if b == nil {
		return 0
	}
	g := c.send.Next(min(len(p), c.chunk, len(b.buf)-b.used))
	if g.N == 0 {
		return 0
	}
	copy(b.buf[b.used:], p[:g.N])
	full := b.used+g.N == len(b.buf)
	if !c.postData(g, b.source(b.used), full) {
		return 0
	}
	b.used += g.N
	b.last = c.sq.posted
	c.txStats.copied += uint64(g.N)
	return g.N
}

// currentBlock is the block to copy into, nil with no error if none is to be had now. The
// caller holds tx.
func (c *Conn) currentBlock() (*sendBlock, error) {
	b, err := c.blocks.current(c.ep, &c.sq)
	if b == nil && err == nil && c.reap() {
		b, err = c.blocks.current(c.ep, &c.sq)
	}
	if err != nil && !c.blocks.missed {
		// There is no memory to send from. What a request holds by itself keeps the
		// stream going, slowly, until there is.
		c.blocks.missed = true
		c.ep.log(slog.LevelWarn, "rdmanet: no memory to send from, so messages are small", "inline", c.ep.inline, "err", err)
	}
	return b, err
}

// sendFrom sends block memory that the caller owns, from off up to end, waiting
// for room. It returns how many bytes it sent.
func (c *Conn) sendFrom(b *sendBlock, end int) (sent int, err error) {
	if err := c.mayWrite(); err != nil {
		return 0, err
	}
	for sent < end {
		n := 0
		c.tx.Lock()
		if c.term.maySend() && c.sendGathered() {
			if g, next := c.next(min(end-sent, c.chunk)); next > 0 && c.room() {
				// The last request that reads the block is signalled, or the block would
				// never be known to be free.
				if c.postFrom(b, sent, next, g, sent+next == end || c.lastForNow(g)) {
					n = next
					b.last = c.sq.posted
					c.txStats.placed += uint64(n)
				}
			}
		}
		c.tx.Unlock()
		sent += n
		if n == 0 {
			if err := c.stall(); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// lastForNow says whether a call may have to wait after the message that g grants,
// and so may give up there. The caller holds tx.
func (c *Conn) lastForNow(g ring.Grant) bool {
	return c.send.Free()-g.N < c.leastRoom() || c.send.Slots() == 1 || c.sq.room() < 2*messageRoom
}

// messageRoom is what room asks for.
const messageRoom = maxMessageWRs + sendQueueReserve

// room says whether the send queue takes one more data message and still has
// room for a control message. The caller holds tx.
func (c *Conn) room() bool {
	ok, err := c.sq.reserveRoom(messageRoom)
	if err != nil {
		c.sendFailed(err)
	}
	return ok
}

// reap takes in what the device has completed; false if the connection failed. The
// caller holds tx.
func (c *Conn) reap() bool {
	if err := c.sq.reap(); err != nil {
		c.sendFailed(err)
		return false
	}
	return true
}

// stall waits until there is room to write, or an error.
func (c *Conn) stall() error {
	if err := c.term.writeErr(); err != nil {
		return err
	}
	began := time.Now()
	region := traceStalling()
	c.stalling(true)
	err := c.wait(dirWrite)
	c.stalling(false)
	region.End()
	c.tx.Lock()
	c.txStats.stalls++
	c.txStats.stallTime += time.Since(began)
	c.tx.Unlock()
	if err != nil {
		return err
	}
	return c.term.writeErr()
}

// tryWrite polls once and says whether the writer has something to do.
func (c *Conn) tryWrite() bool {
	if c.term.ended(dirWrite) {
		return true
	}
	c.rx.Lock()
	c.progress()
	c.rx.Unlock()
	if c.term.ended(dirWrite) || c.busy.Load() {
		return true
	}
	c.tx.Lock()
	defer c.tx.Unlock()
	return !c.term.sendDone() && c.send.Free() >= c.leastRoom() && c.send.Slots() > 0 && c.room() && c.blockReady() && !c.term.sendDone()
}

// blockReady says whether the writer gets the block it needs, if it needs one. The
// queue may be nearly empty and hold all blocks, so room alone does not reap. The
// caller holds tx.
func (c *Conn) blockReady() bool {
	return c.ep.synchronous && !c.wantBlock || c.blocks.ready(&c.sq, c.wantBlock) ||
		!c.reap() || c.blocks.ready(&c.sq, c.wantBlock)
}

// armWrite is tryWrite around an arming of the CQs.
func (c *Conn) armWrite() bool {
	if c.tryWrite() {
		return true
	}
	if err := c.ep.recvCQ.ReqNotify(false); err != nil {
		c.fail(syscall.ECONNABORTED, err)
		return true
	}
	c.tx.Lock()
	sending := !c.sq.idle()
	c.tx.Unlock()
	if sending {
		if err := c.ep.sendCQ.ReqNotify(false); err != nil {
			c.fail(syscall.ECONNABORTED, err)
			return true
		}
	}
	return c.tryWrite()
}

// CloseWrite ends the stream to the peer, whose Reads return io.EOF after all
// that was written. Reading goes on.
func (c *Conn) CloseWrite() error {
	if !c.life.incref() {
		return c.opError(opClose, net.ErrClosed)
	}
	err := c.closeWrite()
	c.exit(c.life.decref())
	return c.opError(opClose, err)
}

// over says that neither end can send any more, so that there is nothing to shut.
func (c *Conn) over() bool {
	c.rx.Lock()
	c.progress()
	c.rx.Unlock()
	return c.term.over()
}

func (c *Conn) closeWrite() error {
	if c.over() {
		return os.NewSyscallError("shutdown", syscall.ENOTCONN)
	}
	c.tx.Lock()
	first := c.term.shutWrite()
	if first && c.term.mayFlush() {
		c.end(c.term.endKind())
	}
	c.tx.Unlock()
	if first {
		c.wake(dirWrite)
	}
	return nil
}
