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

// receiveSums is what the receive half of a connection with checksums has.
type receiveSums struct {
	// The read lock of the Conn's lifecycle guards these.
	frames ring.FrameReader
	err    error // a wrong checksum was found: nothing more is read

	// The receive half's lock guards these.
	ended bool
	end   uint32 // what FIN or Close said, if ended
}

// sendSums is what the send half of a connection with checksums has; its lock guards it.
type sendSums struct {
	sum uint32 // of all that was sent
	buf [ring.FrameHeaderLen + smallFrame]byte
}

// Checksum says whether the connection has checksums, by the wish of either end.
func (c *Conn) Checksum() bool { return c.via.hasChecksum() }

// checksumFeatures are what this end says of checksums.
func checksumFeatures(want bool) cm.Features {
	if want {
		return cm.FeatureChecksum | cm.FeatureWantChecksum
	}
	return cm.FeatureChecksum
}

// leastRoom is the least free space in the peer's ring with which something can be sent.
func (w *sendHalf) leastRoom() int {
	if w.sums != nil {
		return ring.FrameAlign
	}
	return 1
}

// next grants a message with n bytes of the stream, at most limit.
func (w *sendHalf) next(limit int) (g ring.Grant, n int) {
	if w.sums != nil {
		return w.ring.NextFrame(limit)
	}
	g = w.ring.Next(limit)
	return g, g.N
}

// header makes the header of a frame with b.
func (s *sendSums) header(b []byte) ring.FrameHeader {
	s.sum = ring.Checksum(s.sum, b)
	return ring.FrameHeader{Len: uint32(len(b)), Sum: s.sum}
}

// sendFrame is sendSome on a connection with checksums. The caller holds mu.
func (w *sendHalf) sendFrame(p []byte) int {
	g, n := w.ring.NextFrame(min(len(p), int(w.chunk)))
	if n == 0 || !w.reserveRoom() {
		return 0
	}
	if w.ep.synchronous || ring.FrameHeaderLen+n <= w.ep.inline {
		return w.sendFrameInline(p[:n], g)
	}
	return w.stageFrame(p)
}

// sendFrameInline sends the frame that g grants with p in the requests. The caller holds mu.
func (w *sendHalf) sendFrameInline(p []byte, g ring.Grant) int {
	if len(p) == 0 {
		return 0
	}
	s := w.sums
	h := s.header(p)
	h.Put(s.buf[:])
	if len(p) <= smallFrame {
		n := ring.FrameHeaderLen + copy(s.buf[ring.FrameHeaderLen:], p)
		if !w.postFrame(g, len(p), nil, source{bytes: s.buf[:n], inline: true}, false) {
			return 0
		}
		w.stats.copied += uint64(len(p))
		return len(p)
	}
	if !w.postFrame(g, len(p), s.buf[:ring.FrameHeaderLen], source{bytes: p, inline: true}, false) {
		return 0
	}
	w.stats.placed += uint64(len(p))
	return len(p)
}

// stageFrame is sendStaged on a connection with checksums. The caller holds mu.
func (w *sendHalf) stageFrame(p []byte) int {
	b, err := w.currentBlock()
	if err != nil {
		g, n := w.ring.NextFrame(min(len(p), int(w.chunk), w.ep.inline-ring.FrameHeaderLen))
		return w.sendFrameInline(p[:n], g)
	}
	if b == nil {
		return 0
	}
	g, n := w.ring.NextFrame(min(len(p), int(w.chunk), len(b.buf)-b.used-ring.FrameHeaderLen))
	if n == 0 {
		return 0
	}
	f := b.buf[b.used:][:ring.FrameHeaderLen+n]
	w.sums.header(p[:n]).Put(f)
	copy(f[ring.FrameHeaderLen:], p)
	end := b.used + len(f)
	full := len(b.buf)-end < ring.FrameAlign
	if full {
		end = len(b.buf) // what is left is too short for another
	}
	if !w.postFrame(g, n, nil, b.source(b.used), full) {
		return 0
	}
	b.used, b.last = end, w.sq.posted
	w.stats.copied += uint64(n)
	return n
}

// postFrom posts the n bytes from off on of a block that the caller owns. The caller holds
// mu and has made sure of the room.
func (w *sendHalf) postFrom(b *sendBlock, off, n int, g ring.Grant, signal bool) bool {
	src := b.source(off)
	src.inline = w.ep.synchronous
	if w.sums == nil {
		return w.postData(g, src, signal)
	}
	head := w.sums.buf[:ring.FrameHeaderLen]
	w.sums.header(b.buf[off : off+n]).Put(head)
	return w.postFrame(g, n, head, src, signal)
}

// postFrame posts the frame that g grants for n bytes of the stream. Its header is head,
// or the beginning of src. The caller holds mu and has made sure of the room.
func (w *sendHalf) postFrame(g ring.Grant, n int, head []byte, src source, signal bool) bool {
	if g.Grown {
		w.ep.takeUp()
	}
	w.ring.Sent(g)
	w.stats.messages++
	w.stats.bytes += uint64(n)
	bell := g.Doorbell().FramedImm()
	g.Span[g.Spans-1].Len -= uint32(g.N - ring.FrameHeaderLen - n) // padding
	wrs, count, r := w.wr[:], g.Spans, (*requests)(nil)
	if head != nil || g.Spans > 1 || !src.inline || !w.ep.writeImm {
		r = takeRequests()
		defer r.giveBack()
		wrs = r.wrs[:]
	}
	if head != nil {
		at := [1]ring.Span{{Off: g.Span[0].Off, Len: ring.FrameHeaderLen}}
		w.writeSpans(wrs, r, at[:], &source{bytes: head, inline: true})
		g.Span[0].Off += ring.FrameHeaderLen
		g.Span[0].Len -= ring.FrameHeaderLen
		count++
	}
	w.writeSpans(wrs[count-g.Spans:], r, g.Span[:g.Spans], &src)
	return w.postDoorbell(wrs[:count], r, bell, nil, signal)
}

// doorbell is the immediate of a message without data. The caller holds mu.
func (w *sendHalf) doorbell(kind ring.Kind) uint32 {
	d := ring.Doorbell{Kind: kind}
	if w.sums == nil {
		return d.Imm()
	}
	if kind == ring.KindFIN || kind == ring.KindClose {
		d.Len = w.sums.sum & ring.SumBits
	}
	return d.FramedImm()
}

// parseDoorbell is the inverse of doorbell, and takes in what FIN or Close say of the
// stream. The caller holds mu.
func (r *receiveHalf) parseDoorbell(imm uint32) (ring.Doorbell, error) {
	if r.sums == nil {
		return ring.ParseDoorbell(imm)
	}
	d, err := ring.ParseFramedDoorbell(imm)
	if d.Kind == ring.KindFIN || d.Kind == ring.KindClose {
		r.sums.ended, r.sums.end = true, d.Len
	}
	return d, err
}

// readFrames is read where something has arrived. The caller holds mu, which is not held
// while much is copied.
func (r *receiveHalf) readFrames(p []byte) (int, error) {
	s := r.sums
	if s.err != nil {
		return 0, s.err
	}
	a, b := r.unread(r.ring.Buffered())
	much := len(a)+len(b) > copyUnderLock
	if much {
		r.borrowed = uint32(min(len(a)+len(b), len(p)))
		r.mu.Unlock()
	}
	n, used, err := s.frames.Read(p, a, b)
	if much {
		r.mu.Lock()
		r.borrowed = 0
	}
	r.stats.copied += uint64(n)
	r.stats.framing += uint64(used - n)
	r.consume(used)
	if err != nil {
		return n, r.corrupted(err)
	}
	return n, nil
}

// openFrame compares the next frame, unless one is open, and returns how many of its
// bytes are there. The caller holds mu, which is not held meanwhile.
func (r *receiveHalf) openFrame() (int, error) {
	s := r.sums
	if s.err != nil {
		return 0, s.err
	}
	a, b := r.unread(r.ring.Buffered())
	r.mu.Unlock()
	used, err := s.frames.Open(a, b)
	r.mu.Lock()
	r.stats.framing += uint64(used)
	r.consume(used)
	if err != nil {
		return 0, r.corrupted(err)
	}
	return s.frames.Left(), nil
}

// checkEnd compares what the peer's application wrote with all that was read, when nothing
// is left. The caller holds mu and the read lock.
func (r *receiveHalf) checkEnd() error {
	s := r.sums
	if s.err == nil && s.ended && s.frames.Sum()&ring.SumBits != s.end {
		return r.corrupted(fmt.Errorf("%w: the stream ended with %#07x, the sender's with %#07x", ErrChecksum, s.frames.Sum()&ring.SumBits, s.end))
	}
	return s.err
}

// corrupted ends a connection on which wrong bytes arrived, and tells the peer if there is
// a slot for that. The caller holds mu and the read lock.
func (r *receiveHalf) corrupted(cause error) error {
	cause = fmt.Errorf("after %d bytes: %w", r.ring.ConsumedBytes()-r.stats.framing, cause)
	r.sums.err = newConnError(syscall.ECONNRESET, cause)
	r.stats.corrupt++
	r.ep.log(slog.LevelError, "rdmanet: bytes did not arrive as they were sent", "err", cause)
	if r.s.term.mayFlush() {
		r.s.send.mu.Lock()
		told := r.s.send.postControl(ring.KindCorrupt, nil)
		r.s.send.pending = 0
		r.s.send.mu.Unlock()
		if told {
			r.s.term.toldCorrupt() // Close sees to it that it arrives
		}
	}
	r.s.fail(syscall.ECONNRESET, cause)
	return r.sums.err
}
