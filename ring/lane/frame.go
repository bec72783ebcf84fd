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

// Frames takes the bytes of the stream out of what Receiver.Readable returns. It is nil without
// checksums. It is the reader's alone, also while others use the Lane.
func (s *Stream) Frames() *ring.FrameReader {
	if s.sums == nil {
		return nil
	}
	return &s.sums.reader
}

// Payload returns how many of at most n bytes of the stream are in the message that Data has
// put at p.
func (s *Stream) Payload(p Span, n int) int {
	if s.sums == nil || p.Len == 0 {
		return min(n, int(p.Len))
	}
	return min(n, int(p.Len)-ring.FrameHeaderLen)
}

// Sum returns the checksum of all frames that were sent, 0 without checksums.
func (s *Stream) Sum() uint32 {
	if s.sums == nil {
		return 0
	}
	return s.sums.sent
}

// Summed records the checksum of the stream with the frame that Data has just given a place to,
// as its header has it. To be called before any other method of the Lane.
func (s *Stream) Summed(sum uint32) { s.sums.sent = sum }

// endSum takes in what the peer says that it has sent.
func (s *Stream) endSum(sum uint32) {
	if s.sums != nil {
		s.sums.end, s.sums.ended = sum, true
	}
}

// CheckEnd compares what the peer has sent, by its own words, with what was read, when all was
// and the peer has ended. The error matches ring.ErrChecksum. It is the reader's, as Frames is.
func (s *Stream) CheckEnd() error {
	if s.sums == nil || !s.sums.ended || s.rx.Buffered() > 0 || s.sums.reader.Sum() == s.sums.end {
		return nil
	}
	return fmt.Errorf("%w: the stream ended with %#08x, the sender's with %#08x", ring.ErrChecksum, s.sums.reader.Sum(), s.sums.end)
}
