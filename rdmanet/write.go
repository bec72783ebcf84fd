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
	n, err := c.via.write(p)
	c.exit(c.life.unlock(dirWrite))
	if err != nil {
		err = c.opError(opWrite, inCall(opWrite, err))
	}
	return n, err
}

// write is Write for the holder of the write lock.
func (w *sendHalf) write(p []byte) (n int, err error) {
	if err := w.mayWrite(); err != nil {
		return 0, err
	}
	for n < len(p) {
		sent := w.sendSome(p[n:], n == 0)
		n += sent
		if sent == 0 {
			if err := w.stall(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// mayWrite says why a Write must fail now.
func (w *sendHalf) mayWrite() error {
	if w.waiter.expired() {
		return os.ErrDeadlineExceeded
	}
	return w.s.term.writeErr()
}

// sendSome sends one message of p's first bytes and returns how many those were;
// 0 if there is no room for any. whole says that p is all that a Write was given.
func (w *sendHalf) sendSome(p []byte, whole bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.s.term.maySend() {
		return 0
	}
	if w.sums != nil {
		return w.sendFrame(p)
	}
	if !w.ep.synchronous {
		if whole && w.gather(p) {
			return len(p)
		}
		if !w.sendGathered() {
			return 0
		}
	}
	g := w.ring.Next(min(len(p), int(w.chunk)))
	if g.N == 0 || !w.reserveRoom() {
		return 0
	}
	if w.ep.synchronous || g.N <= w.ep.inline {
		return w.sendInline(p, g)
	}
	return w.sendStaged(p)
}

// sendInline sends the message that g grants with p's bytes in the requests. The
// caller holds mu.
func (w *sendHalf) sendInline(p []byte, g ring.Grant) int {
	if !w.postData(g, source{bytes: p, inline: true}, false) {
		return 0
	}
	if w.ep.synchronous {
		w.stats.placed += uint64(g.N)
	} else {
		w.stats.copied += uint64(g.N)
	}
	return g.N
}

// sendStaged copies p's first bytes to registered memory and sends them from
// there. The caller holds mu and has seen room for at least one byte.
func (w *sendHalf) sendStaged(p []byte) int {
	b, err := w.currentBlock()
	if err != nil {
		return w.sendInline(p, w.ring.Next(min(len(p), int(w.chunk), w.ep.inline)))
	}
	if b == nil {
		return 0
	}
	g := w.ring.Next(min(len(p), int(w.chunk), len(b.buf)-b.used))
	if g.N == 0 {
		return 0
	}
	copy(b.buf[b.used:], p[:g.N])
	full := b.used+g.N == len(b.buf)
	if !w.postData(g, b.source(b.used), full) {
		return 0
	}
	b.used += g.N
	b.last = w.sq.posted
	w.stats.copied += uint64(g.N)
	return g.N
}

// currentBlock is the block to copy into, nil with no error if none is to be had now. The
// caller holds mu.
func (w *sendHalf) currentBlock() (*sendBlock, error) {
	b, err := w.blocks.current(w.ep, &w.sq)
	if b == nil && err == nil && w.reap() {
		b, err = w.blocks.current(w.ep, &w.sq)
	}
	if err != nil && !w.blocks.missed {
		// There is no memory to send from. What a request holds by itself keeps the
		// stream going, slowly, until there is.
		w.blocks.missed = true
		w.ep.log(slog.LevelWarn, "rdmanet: no memory to send from, so messages are small", "inline", w.ep.inline, "err", err)
	}
	return b, err
}

// sendFrom sends block memory that the caller owns, from off up to end, waiting
// for room. It returns how many bytes it sent.
func (w *sendHalf) sendFrom(b *sendBlock, end int) (sent int, err error) {
	if err := w.mayWrite(); err != nil {
		return 0, err
	}
	for sent < end {
		n := 0
		w.mu.Lock()
		if w.s.term.maySend() && w.sendGathered() {
			if g, next := w.next(min(end-sent, int(w.chunk))); next > 0 && w.reserveRoom() {
				// The last request that reads the block is signalled, or the block would
				// never be known to be free.
				if w.postFrom(b, sent, next, g, sent+next == end || w.lastForNow(g)) {
					n = next
					b.last = w.sq.posted
					w.stats.placed += uint64(n)
				}
			}
		}
		w.mu.Unlock()
		sent += n
		if n == 0 {
			if err := w.stall(); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// lastForNow says whether a call may have to wait after the message that g grants,
// and so may give up there. The caller holds mu.
func (w *sendHalf) lastForNow(g ring.Grant) bool {
	return w.ring.Free()-g.N < w.leastRoom() || w.ring.Slots() == 1 || w.sq.room() < 2*messageRoom
}

// messageRoom is what a data message asks of reserveRoom.
const messageRoom = maxMessageWRs + sendQueueReserve

// reserveRoom reaps if need be, and says whether the send queue takes one more data message and still has
// room for a control message. The caller holds mu.
func (w *sendHalf) reserveRoom() bool {
	ok, err := w.sq.reserveRoom(messageRoom)
	if err != nil {
		w.sendFailed(err)
	}
	return ok
}

// reap takes in what the device has completed; false if the connection failed. The
// caller holds mu.
func (w *sendHalf) reap() bool {
	if err := w.sq.reap(); err != nil {
		w.sendFailed(err)
		return false
	}
	return true
}

// stall waits until there is room to write, or an error.
func (w *sendHalf) stall() error {
	if err := w.s.term.writeErr(); err != nil {
		return err
	}
	began := time.Now()
	region := traceStalling()
	w.stalled.Store(int64(began.Sub(epoch)))
	w.s.stalling(true)
	err := w.waiter.wait(w.s, dirWrite, w)
	w.s.stalling(false)
	region.End()
	w.mu.Lock()
	w.stats.stall(time.Since(began))
	w.stalled.Store(0)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.s.term.writeErr()
}

// try polls once and reports whether there is room to write, or never will be.
func (w *sendHalf) try() bool {
	if w.s.term.ended(dirWrite) {
		return true
	}
	w.s.recv.takeIn()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.s.term.sendDone() || !w.ringRoom() {
		return w.s.term.ended(dirWrite)
	}
	if !w.queueRoom() { // which the send CQ may change
		w.reap()
	}
	return w.s.term.ended(dirWrite) || !w.s.term.sendDone() && w.queueRoom()
}

// ringRoom reports whether the peer has room for a message with data. The caller holds mu.
func (w *sendHalf) ringRoom() bool { return w.ring.Free() >= w.leastRoom() && w.ring.Slots() > 0 }

// queueRoom reports whether this end has: in the send queue, which may be nearly empty while
// all blocks are in use, and in a block, if the writer needs one. The caller holds mu.
func (w *sendHalf) queueRoom() bool {
	return w.sq.room() >= messageRoom &&
		(w.ep.synchronous && !w.wantBlock || w.blocks.ready(&w.sq, w.wantBlock))
}

// beforeSleep: a queue that is idle has room, and its blocks are free.
func (w *sendHalf) beforeSleep() (needsSends bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.sq.idle()
}

// CloseWrite ends the stream to the peer, whose Reads return io.EOF after all
// that was written. Reading goes on.
func (c *Conn) CloseWrite() error {
	if !c.life.incref() {
		return c.opError(opClose, net.ErrClosed)
	}
	err := c.via.closeWrite()
	c.exit(c.life.decref())
	return c.opError(opClose, err)
}

func (s *stream) closeWrite() error {
	s.recv.takeIn()
	if s.term.over() {
		return os.NewSyscallError("shutdown", syscall.ENOTCONN)
	}
	s.send.mu.Lock()
	first := s.term.shutWrite()
	if first && s.term.mayFlush() {
		s.send.end(s.term.endKind())
	}
	s.send.mu.Unlock()
	if first {
		s.endWait(dirWrite)
	}
	return nil
}
