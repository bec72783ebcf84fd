package link

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/asynclog"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// What a stream does otherwise on a lane with checksums (docs/PROTOCOL.md, section 4): it sends
// frames, and takes bytes out of frames.

// smallFrame is what is copied behind its header, so that one request has both. A larger one
// goes by a request more where the device takes the bytes where they are.
const smallFrame = 256

// summed are bytes that were summed ahead: how many, and what the stream comes to with them.
type summed struct {
	n   int
	sum uint32
}

// header is how long that of a message is: 0 without checksums.
func (s *stream) header() int {
	if s.st.Frames() == nil {
		return 0
	}
	return ring.FrameHeaderLen
}

// payload returns how many of n bytes the next frame takes now.
func (s *stream) payload(n int) int {
	return s.st.Payload(s.st.Sender().Next(ring.FrameLen(n)), n)
}

// sumAhead sums what of p the next frame is likely to take, without the lock where that is
// much. mu is held when it is called and when it returns, and the turn to write.
func (s *stream) sumAhead(p []byte) summed {
	if s.st.Frames() == nil {
		return summed{}
	}
	if p = p[:s.payload(len(p))]; len(p) <= copyUnderLock {
		return summed{}
	}
	sum := s.st.Sum()
	s.e.mu.Unlock()
	sum = ring.Checksum(sum, p)
	s.e.mu.Lock()
	return summed{len(p), sum}
}

// frame posts the frame that wr has the place of, with p: inline, from memory that was staged with
// room for the header before it, or from other memory of the device.
// mu is held.
func (s *stream) frame(wr *verbs.SendWR, p []byte, from *staged, ahead summed) (taken bool) {
	e := s.e
	if ahead.n != len(p) {
		ahead.sum = ring.Checksum(s.st.Sum(), p)
	}
	var head []byte
	h := ring.FrameHeader{Len: uint32(len(p)), Sum: ahead.sum}
	s.st.Summed(h.Sum)
	switch {
	case from != nil && from.framed:
		h.Put(from.bytes)
		e.gather(wr, verbs.SGE{Addr: from.addr, Length: ring.FrameHeaderLen + uint32(len(p)), LKey: from.lkey})
	case from == nil && len(p) <= smallFrame:
		h.Put(e.frame[:])
		wr.Inline = e.frame[:ring.FrameHeaderLen+copy(e.frame[ring.FrameHeaderLen:], p)]
	default:
		h.Put(e.frame[:])
		head = e.frame[:ring.FrameHeaderLen]
	}
	return e.post(s, head, false)
}

// takeFrames is take on a lane with checksums. mu is held when it is called and when it returns.
func (s *stream) takeFrames(p []byte) (n int, err error) {
	e := s.e
	rx, frames := s.st.Receiver(), s.st.Frames()
	for n < len(p) && !s.end.closed && s.in.corrupt == nil && rx.Buffered() > 0 {
		b := s.unread()
		much := len(b) > copyUnderLock
		if much {
			s.in.copying, s.in.borrowed = true, int32(min(len(b), ring.FrameLen(len(p)-n)))
			e.mu.Unlock()
		}
		k, used, wrong := frames.Read(p[n:], b, nil)
		if much {
			e.mu.Lock()
			s.in.copying, s.in.borrowed = false, 0
			s.endUse()
		}
		n += k
		s.counts.count().framingIn += uint64(used - k)
		if !s.consume(used) {
			break
		}
		if wrong != nil {
			s.corrupted(wrong)
		}
	}
	if n == 0 {
		err = s.endErr()
	} else if e.err == nil {
		e.settle()
	}
	return n, err
}

// openFrame compares the frame that the unread bytes begin with, unless one is open, and returns
// what is there of it. mu is held when it is called and when it returns.
func (s *stream) openFrame() ([]byte, error) {
	e := s.e
	b, frames := s.unread(), s.st.Frames()
	much := frames.Left() == 0 && len(b) > copyUnderLock
	if much {
		s.in.copying = true
		e.mu.Unlock()
	}
	used, wrong := frames.Open(b, nil)
	if much {
		e.mu.Lock()
		s.in.copying = false
		s.endUse()
	}
	if s.end.closed {
		return nil, net.ErrClosed
	}
	if wrong != nil {
		s.corrupted(wrong)
		return nil, s.in.corrupt
	}
	s.counts.count().framingIn += uint64(used)
	s.consume(used)
	return b[used:][:frames.Left():frames.Left()], nil
}

// ringBytes returns how many bytes of the ring n peeked bytes take: where they end a
// frame, its padding as well. More than was peeked at is more than there is. mu is held.
func (s *stream) ringBytes(n int) int {
	switch f := s.st.Frames(); {
	case f == nil:
		return n
	case n > f.Left():
		return math.MaxInt
	default:
		return f.Takes(n)
	}
}

// endErr is readErr where nothing that is unread may be given out any more. An end of the stream
// is one if it is where the peer's was. mu is held.
func (s *stream) endErr() error {
	if s.in.corrupt != nil && !s.end.closed {
		return s.in.corrupt
	}
	err := s.readErr()
	if err == io.EOF && s.st.Ended() {
		if wrong := s.st.CheckEnd(); wrong != nil {
			s.corrupted(wrong)
			return s.in.corrupt
		}
	}
	return err
}

// corrupted breaks a stream off on which wrong bytes arrived, and tells the peer, if that has
// not ended the stream. The lane goes on. mu is held.
func (s *stream) corrupted(cause error) {
	if s.end.closed || s.in.corrupt != nil {
		return
	}
	e := s.e
	cause = fmt.Errorf("after %d bytes: %w", s.taken(), cause)
	s.in.corrupt = &Error{syscall.ECONNRESET, cause}
	s.failWith(s.in.corrupt)
	if e.err == nil {
		e.state.Reset(s.st, lane.CodeChecksum)
		e.settle()
	}
	s.out.waiter.found(e)
	device, local, remote := e.p.ctx.Device().Name(), s.LocalAddr(), s.RemoteAddr()
	asynclog.Log(s.log(), slog.LevelError, "rdmanet: bytes did not arrive as they were sent", "device", device, "local", local, "remote", remote, "err", cause)
}
