package lane

import (
	"fmt"

	"github.com/rdmanet/go-rdmanet/ring"
)

// sums is what a stream has on a lane with checksums. There every data message is one frame of
// package ring: a header, bytes of the stream, and padding. To rings, credits and totals the
// bytes of a frame are bytes like any other. A frame does not go past the end of a ring, as no
// message does; lengths and positions are multiples of ring.FrameAlign, so there is room for a
// frame wherever there is room at all.
type sums struct {
	reader ring.FrameReader // what was read; whoever reads guards it
	sent   uint32           // sum of what was sent
	end    uint32           // what the peer has said that it sent, if ended
	ended  bool
}

// newSums returns the sums of a new stream, nil without checksums.
func (l *Lane) newSums() *sums {
	if !l.cfg.Checksums {
		return nil
	}
	return new(sums)
}

// Frames returns the reader of the frames in what Receiver.Readable returns, nil without checksums.
// Unlike the rest of a Stream it may be used while another goroutine uses the Lane, by one
// goroutine at a time.
func (s *Stream) Frames() *ring.FrameReader {
	if s.sums == nil {
		return nil
	}
	return &s.sums.reader
}

// Payload returns how many bytes of the stream go into p, which Lane.Data returned for n.
func (s *Stream) Payload(p Span, n int) int {
	if s.sums == nil || p.Len == 0 {
		return min(n, int(p.Len))
	}
	return min(n, int(p.Len)-ring.FrameHeaderLen)
}

// Sum returns the CRC-32C of all bytes that were sent, 0 without checksums.
func (s *Stream) Sum() uint32 {
	if s.sums == nil {
		return 0
	}
	return s.sums.sent
}

// Summed records sum, the CRC-32C in the header of the frame for which Lane.Data has just returned
// a place. Call it before any other method of the Lane.
func (s *Stream) Summed(sum uint32) { s.sums.sent = sum }

// endSum records the checksum of all that the peer has sent, as it says.
func (s *Stream) endSum(sum uint32) {
	if s.sums != nil {
		s.sums.end, s.sums.ended = sum, true
	}
}

// CheckEnd compares the checksum of what was read with that of what the peer says it has sent, once
// the peer has ended and all was read. The error matches ring.ErrChecksum. The goroutine that
// uses Frames may call it.
func (s *Stream) CheckEnd() error {
	if s.sums == nil || !s.sums.ended || s.rx.Buffered() > 0 || s.sums.reader.Sum() == s.sums.end {
		return nil
	}
	return fmt.Errorf("%w: the stream ended with another than the sender's", ring.ErrChecksum)
}
