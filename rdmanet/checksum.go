package rdmanet

import (
	"fmt"
	"log/slog"
	"syscall"

	"github.com/rdmanet/go-rdmanet/cm"
	"github.com/rdmanet/go-rdmanet/ring"
)

// Checksums (docs/PROTOCOL.md, section 19). A connection that has them sends frames and
// takes bytes out of frames; all else, the ring included, does not know of it.

// smallFrame is what is copied behind its header, so that one request has both. A frame
// that is larger goes by a request more on a device that takes the bytes where they are.
const smallFrame = 256

// checksums is what a connection has that one without them does without.
type checksums struct {
	// Guarded by the read lock.
	frames ring.FrameReader
	err    error // a wrong checksum was found: nothing more is read

	// Guarded by rx.
	ended bool
	end   uint32 // what FIN or Close said, if ended

	// Guarded by tx.
	sum uint32 // of all that was sent
	buf [ring.FrameHeaderLen + smallFrame]byte
}

// Checksum says whether the connection has checksums, by the wish of either end.
func (c *Conn) Checksum() bool { return c.sums != nil }

// checksumFeatures are what this end says of checksums.
func checksumFeatures(want bool) cm.Features {
	if want {
		return cm.FeatureChecksum | cm.FeatureWantChecksum
	}
	return cm.FeatureChecksum
}

// leastRoom is the least free space in the peer's ring with which something can be sent.
func (c *Conn) leastRoom() int {
	if c.sums != nil {
		return ring.FrameAlign
	}
	return 1
}

// next grants a message with n bytes of the stream, at most limit.
func (c *Conn) next(limit int) (g ring.Grant, n int) {
	if c.sums != nil {
		return c.send.NextFrame(limit)
	}
	g = c.send.Next(limit)
	return g, g.N
}

// header makes the header of a frame with b.
func (s *checksums) header(b []byte) ring.FrameHeader {
	s.sum = ring.Checksum(s.sum, b)
	return ring.FrameHeader{Len: uint32(len(b)), Sum: s.sum}
}

// sendFrame is sendSome on a connection with checksums. The caller holds tx.
func (c *Conn) sendFrame(p []byte) int {
	g, n := c.send.NextFrame(min(len(p), c.chunk))
	if n == 0 || !c.room() {
		return 0
	}
	if c.ep.synchronous || ring.FrameHeaderLen+n <= c.ep.inline {
		return c.sendFrameInline(p[:n], g)
	}
	return c.stageFrame(p)
}

// sendFrameInline sends the frame that g grants with p in the requests. The caller holds tx.
func (c *Conn) sendFrameInline(p []byte, g ring.Grant) int {
	if len(p) == 0 {
		return 0
	}
	s := c.sums
	h := s.header(p)
	h.Put(s.buf[:])
	if len(p) <= smallFrame {
		n := ring.FrameHeaderLen + copy(s.buf[ring.FrameHeaderLen:], p)
		if !c.postFrame(g, len(p), nil, source{bytes: s.buf[:n], inline: true}, false) {
			return 0
		}
		c.txStats.copied += uint64(len(p))
		return len(p)
	}
	if !c.postFrame(g, len(p), s.buf[:ring.FrameHeaderLen], source{bytes: p, inline: true}, false) {
		return 0
	}
	c.txStats.placed += uint64(len(p))
	return len(p)
}

// stageFrame is sendStaged on a connection with checksums. The caller holds tx.
func (c *Conn) stageFrame(p []byte) int {
	b, err := c.currentBlock()
	if err != nil {
		g, n := c.send.NextFrame(min(len(p), c.chunk, c.ep.inline-ring.FrameHeaderLen))
		return c.sendFrameInline(p[:n], g)
	}
	if b == nil {
		return 0
	}
	g, n := c.send.NextFrame(min(len(p), c.chunk, len(b.buf)-b.used-ring.FrameHeaderLen))
	if n == 0 {
		return 0
	}
	f := b.buf[b.used:][:ring.FrameHeaderLen+n]
	c.sums.header(p[:n]).Put(f)
	copy(f[ring.FrameHeaderLen:], p)
	end := b.used + len(f)
	full := len(b.buf)-end < ring.FrameAlign
	if full {
		end = len(b.buf) // what is left is too short for another
	}
	if !c.postFrame(g, n, nil, b.source(b.used), full) {
		return 0
	}
	b.used, b.last = end, c.sq.posted
	c.txStats.copied += uint64(n)
	return n
}

// postFrom posts the n bytes from off on of a block that the caller owns. The caller holds
// tx and has made sure of the room.
func (c *Conn) postFrom(b *sendBlock, off, n int, g ring.Grant, signal bool) bool {
	src := b.source(off)
	src.inline = c.ep.synchronous
	if c.sums == nil {
		return c.postData(g, src, signal)
	}
	head := c.sums.buf[:ring.FrameHeaderLen]
	c.sums.header(b.buf[off : off+n]).Put(head)
	return c.postFrame(g, n, head, src, signal)
}

// postFrame posts the frame that g grants for n bytes of the stream. Its header is head,
// or the beginning of src. The caller holds tx and has made sure of the room.
func (c *Conn) postFrame(g ring.Grant, n int, head []byte, src source, signal bool) bool {
	if g.Grown {
		c.ep.takeUp()
	}
	c.send.Sent(g)
	c.txStats.messages++
	c.txStats.bytes += uint64(n)
	bell := g.Doorbell().FramedImm()
	g.Span[g.Spans-1].Len -= uint32(g.N - ring.FrameHeaderLen - n) // padding
	wrs, count, r := c.wr[:], g.Spans, (*requests)(nil)
	if head != nil || g.Spans > 1 || !src.inline || !c.ep.writeImm {
		r = takeRequests()
		defer r.giveBack()
		wrs = r.wrs[:]
	}
	if head != nil {
		at := [1]ring.Span{{Off: g.Span[0].Off, Len: ring.FrameHeaderLen}}
		c.writeSpans(wrs, r, at[:], &source{bytes: head, inline: true})
		g.Span[0].Off += ring.FrameHeaderLen
		g.Span[0].Len -= ring.FrameHeaderLen
		count++
	}
	c.writeSpans(wrs[count-g.Spans:], r, g.Span[:g.Spans], &src)
	return c.ring(wrs[:count], r, bell, nil, signal)
}

// doorbell is the immediate of a message without data. The caller holds tx.
func (c *Conn) doorbell(kind ring.Kind) uint32 {
	d := ring.Doorbell{Kind: kind}
	if c.sums == nil {
		return d.Imm()
	}
	if kind == ring.KindFIN || kind == ring.KindClose {
		d.Len = c.sums.sum & ring.SumBits
	}
	return d.FramedImm()
}

// parseDoorbell is the inverse of doorbell, and takes in what FIN or Close say of the
// stream. The caller holds rx.
func (c *Conn) parseDoorbell(imm uint32) (ring.Doorbell, error) {
	if c.sums == nil {
		return ring.ParseDoorbell(imm)
	}
	d, err := ring.ParseFramedDoorbell(imm)
	if d.Kind == ring.KindFIN || d.Kind == ring.KindClose {
		c.sums.ended, c.sums.end = true, d.Len
	}
	return d, err
}

// readFrames is read where something has arrived. The caller holds rx, which is not held
// while much is copied.
func (c *Conn) readFrames(p []byte) (int, error) {
	s := c.sums
	if s.err != nil {
		return 0, s.err
	}
	a, b := c.unread(c.recv.Buffered())
	much := len(a)+len(b) > copyUnderLock
	if much {
		c.lent = uint32(min(len(a)+len(b), len(p)))
		c.rx.Unlock()
	}
	n, used, err := s.frames.Read(p, a, b)
	if much {
		c.rx.Lock()
		c.lent = 0
	}
	c.rxStats.copied += uint64(n)
	c.rxStats.framing += uint64(used - n)
	c.consume(used)
	if err != nil {
		return n, c.corrupted(err)
	}
	return n, nil
}

// openFrame compares the next frame, unless one is open, and returns how many of its
// bytes are there. The caller holds rx, which is not held meanwhile.
func (c *Conn) openFrame() (int, error) {
	s := c.sums
	if s.err != nil {
		return 0, s.err
	}
	a, b := c.unread(c.recv.Buffered())
	c.rx.Unlock()
	used, err := s.frames.Open(a, b)
	c.rx.Lock()
	c.rxStats.framing += uint64(used)
	c.consume(used)
	if err != nil {
		return 0, c.corrupted(err)
	}
	return s.frames.Left(), nil
}

// checkEnd compares what the peer's application wrote with all that was read, when nothing
// is left. The caller holds rx and the read lock.
func (c *Conn) checkEnd() error {
	s := c.sums
	if s.err == nil && s.ended && s.frames.Sum()&ring.SumBits != s.end {
		return c.corrupted(fmt.Errorf("%w: the stream ended with %#07x, the sender's with %#07x", ErrChecksum, s.frames.Sum()&ring.SumBits, s.end))
	}
	return s.err
}

// corrupted ends a connection on which wrong bytes arrived, and tells the peer if there is
// a slot for that. The caller holds rx and the read lock.
func (c *Conn) corrupted(cause error) error {
	cause = fmt.Errorf("after %d bytes: %w", c.recv.ConsumedBytes()-c.rxStats.framing, cause)
	c.sums.err = newConnError(syscall.ECONNRESET, cause)
	c.rxStats.corrupt++
	c.ep.log(slog.LevelError, "rdmanet: bytes did not arrive as they were sent", "err", cause)
	if c.term.mayFlush() {
		c.tx.Lock()
		told := c.postControl(ring.KindCorrupt, nil)
		c.pending = 0
		c.tx.Unlock()
		if told {
			c.term.toldCorrupt() // Close sees to it that it arrives
		}
	}
	c.fail(syscall.ECONNRESET, cause)
	return c.sums.err
}
