package ring

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// On a connection with checksums the ring holds frames, and a data message is one of
// them. A frame begins at a multiple of FrameAlign and is as long as one; since a ring
// is as well, a header is never torn by the ring's end, and what is left before that end
// always has room for a frame.
//
//	 0        4        8
//	+--------+--------+----------------+---------+
//	| Len    | Sum    | Len bytes      | padding |
//	+--------+--------+----------------+---------+
//
// The padding is not written. To windows and credits the bytes of a frame are bytes like
// any other.
const (
	// FrameAlign is what positions and lengths of frames are multiples of.
	FrameAlign = 16
	// FrameHeaderLen is the length of a FrameHeader on the wire.
	FrameHeaderLen = 8
)

// FrameLen returns how many bytes of the ring a frame with n bytes of the stream takes.
func FrameLen(n int) int { return (n + FrameHeaderLen + FrameAlign - 1) &^ (FrameAlign - 1) }

// A FrameHeader stands before the bytes of a frame.
type FrameHeader struct {
	Len uint32 // bytes of the stream
	Sum uint32 // CRC-32C of all bytes of the stream up to and with these
}

// Put writes h to the first FrameHeaderLen bytes of b, which must have them.
func (h FrameHeader) Put(b []byte) {
	binary.LittleEndian.PutUint64(b[:FrameHeaderLen], uint64(h.Sum)<<32|uint64(h.Len))
}

// frameHeader reads the header in b once, so that a peer which writes to it meanwhile
// cannot make two values of it.
func frameHeader(b []byte) FrameHeader {
	w := binary.LittleEndian.Uint64(b)
	return FrameHeader{Len: uint32(w), Sum: uint32(w >> 32)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of a stream that goes on with b after one of the CRC-32C
// sum. That of nothing is 0.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// A FrameReader takes the bytes of the stream out of the frames of a ring. What it gives
// out has been compared with its checksum.
//
// It is given the unread bytes of the ring, as Receiver.Readable has them: a, then b
// after the wrap. The peer may write to them at any time, so nothing is relied on that is
// read twice, with one exception: bytes of a frame that is not taken as a whole are
// compared in the ring and copied later.
type FrameReader struct {
	sum  uint32 // of all bytes that were compared
	left int    // bytes of the open frame that were compared and not taken
	pad  int    // that follows them
}

// Sum returns the checksum of all bytes that were compared so far.
func (f *FrameReader) Sum() uint32 { return f.sum }

// Left returns how many bytes of the open frame are there to be taken.
func (f *FrameReader) Left() int { return f.left }

// Open compares the frame that a and b begin with, unless one is open. used is how many
// bytes of the ring that consumed. The bytes to be taken are the Left ones behind them.
// The error is a *ChecksumError; nothing is consumed then.
func (f *FrameReader) Open(a, b []byte) (used int, err error) {
	if f.left > 0 {
		return 0, nil
	}
	h, body, rest, err := f.next(a, b)
	if err != nil {
		return 0, err
	}
	if sum := Checksum(Checksum(f.sum, body), rest); sum != h.Sum {
		return 0, &ChecksumError{Len: h.Len, Got: sum, Want: h.Sum}
	}
	f.open(h)
	return FrameHeaderLen, nil
}

func (f *FrameReader) open(h FrameHeader) {
	f.sum, f.left = h.Sum, int(h.Len)
	f.pad = FrameLen(f.left) - FrameHeaderLen - f.left
}

// next is the header that a and b begin with, and the bytes behind it.
func (f *FrameReader) next(a, b []byte) (h FrameHeader, body, rest []byte, err error) {
	if len(a) == 0 {
		a, b = b, nil
	}
	if len(a) < FrameHeaderLen {
		return h, nil, nil, &ChecksumError{Header: true}
	}
	h = frameHeader(a)
	if h.Len == 0 || h.Len > maxPayload || FrameLen(int(h.Len)) > len(a)+len(b) {
		return h, nil, nil, &ChecksumError{Header: true, Len: h.Len, Want: h.Sum}
	}
	body = a[FrameHeaderLen:]
	body = body[:min(len(body), int(h.Len))]
	return h, body, b[:int(h.Len)-len(body)], nil
}

// Takes returns what Take would for n bytes.
func (f *FrameReader) Takes(n int) (used int) {
	if n == f.left && n > 0 {
		n += f.pad
	}
	return n
}

// Take accounts for n bytes of the open frame that were taken, n being at most Left, and
// returns how many bytes of the ring that consumed.
func (f *FrameReader) Take(n int) (used int) {
	f.left -= n
	if f.left == 0 && n > 0 {
		n += f.pad
	}
	return n
}

// Read fills p from the frames in a and b. n is how many bytes of the stream it got, used
// how many bytes of the ring that consumed. A frame that fits is compared after it was
// copied, in p. The error is a *ChecksumError, and n is 0 then: bytes before the frame
// that is wrong are returned first.
func (f *FrameReader) Read(p, a, b []byte) (n, used int, err error) {
	for n < len(p) && len(a)+len(b) > 0 {
		var took, k int
		if f.left == 0 {
			if took, k, err = f.readFrame(p[n:], a, b); err != nil {
				if n > 0 {
					err = nil
				}
				return n, used, err
			}
		} else {
			k = min(f.left, len(p)-n)
			copied := copy(p[n:n+k], a)
			copy(p[n+copied:n+k], b)
			took = f.Take(k)
		}
		n, used = n+k, used+took
		a, b = skip(a, b, took)
	}
	return n, used, nil
}

// readFrame copies the frame that a and b begin with, or opens it if it does not fit.
func (f *FrameReader) readFrame(p, a, b []byte) (used, n int, err error) {
	h, body, rest, err := f.next(a, b)
	if err != nil {
		return 0, 0, err
	}
	if int(h.Len) > len(p) {
		used, err = f.Open(a, b)
		return used, 0, err
	}
	sum := copySum(f.sum, p, body)
	sum = copySum(sum, p[len(body):], rest)
	if sum != h.Sum {
		return 0, 0, &ChecksumError{Len: h.Len, Got: sum, Want: h.Sum}
	}
	f.sum = sum
	return FrameLen(int(h.Len)), int(h.Len), nil
}

// sumStep is how much is copied before it is read again for its checksum: it is still in
// the processor's first cache then.
const sumStep = 16 << 10

// copySum copies b to p, and goes on from sum with what p got.
func copySum(sum uint32, p, b []byte) uint32 {
	for len(b) > 0 {
		n := copy(p, b[:min(len(b), sumStep)])
		sum = Checksum(sum, p[:n])
		p, b = p[n:], b[n:]
	}
	return sum
}

// skip drops the first n bytes of a and b.
func skip(a, b []byte, n int) (_, _ []byte) {
	if n < len(a) {
		return a[n:], b
	}
	return b[n-len(a):], nil
}

// A ChecksumError says that a frame did not arrive as it was sent. It matches ErrChecksum.
type ChecksumError struct {
	Header bool   // no frame can have the header that arrived
	Len    uint32 // what the header said
	Want   uint32 // what the header said
	Got    uint32 // CRC-32C of the stream with the bytes that arrived, unless Header
}

// Error describes the mismatch.
func (e *ChecksumError) Error() string {
	if e.Header {
		return fmt.Sprintf("%v: no message begins with the words %#08x and %#08x here", ErrChecksum, e.Len, e.Want)
	}
	return fmt.Sprintf("%v: %d bytes make %#08x, the sender has %#08x", ErrChecksum, e.Len, e.Got, e.Want)
}

// Is reports whether target is ErrChecksum.
func (e *ChecksumError) Is(target error) bool { return target == ErrChecksum }
