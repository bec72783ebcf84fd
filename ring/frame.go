package ring

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A frame on the wire, little-endian. Its position and its length are multiples of FrameAlign, as
// the size of a ring is. So the end of a ring never splits a header, and what is left before that
// end always has room for a frame.
//
//	 0        4        8
//	+--------+--------+----------------+---------+
//	| Len    | Sum    | Len bytes      | padding |
//	+--------+--------+----------------+---------+
//
// The padding is not written.
const (
	// FrameAlign divides the position and the length of every frame, in bytes.
	FrameAlign = 16
	// FrameHeaderLen is the length of a FrameHeader on the wire in bytes.
	FrameHeaderLen = 8
)

// FrameLen returns the length in bytes of a frame with n bytes of the stream, padding included.
func FrameLen(n int) int { return (n + FrameHeaderLen + FrameAlign - 1) &^ (FrameAlign - 1) }

// A FrameHeader is the header of a frame.
type FrameHeader struct {
	Len uint32 // bytes of the stream in the frame
	Sum uint32 // CRC-32C of all bytes of the stream, to the end of this frame
}

// Put writes h to the first FrameHeaderLen bytes of b. It panics if b is shorter.
func (h FrameHeader) Put(b []byte) {
	binary.LittleEndian.PutUint64(b[:FrameHeaderLen], uint64(h.Sum)<<32|uint64(h.Len))
}

// frameHeader reads the header in b once: a peer that writes to it meanwhile cannot have it
// read with two values.
func frameHeader(b []byte) FrameHeader {
	w := binary.LittleEndian.Uint64(b)
	return FrameHeader{Len: uint32(w), Sum: uint32(w >> 32)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of a stream to the end of b, where sum is that of all bytes before
// b. That of an empty stream is 0.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// A FrameReader takes the bytes of a stream out of the frames in a ring, and compares each frame
// with its checksum first. The zero value is a reader at the beginning of a stream. One goroutine
// may use it at a time.
//
// Its methods are given the unread bytes of the ring: a, and b where they go on at the ring's
// beginning. The peer may write to them at any time, so they are read once, with one exception: a
// frame that is not taken as a whole is compared in the ring and copied later.
type FrameReader struct {
	sum  uint32 // of all bytes that were compared
	left int    // bytes of the open frame that were compared and not taken
	pad  int    // that follows them
}

// Sum returns the CRC-32C of all bytes of the stream that were compared so far.
func (f *FrameReader) Sum() uint32 { return f.sum }

// Left returns how many bytes of the open frame were not taken yet, 0 if none is open.
func (f *FrameReader) Left() int { return f.left }

// Open compares the frame at the beginning of a and b, and opens it: the next Left bytes after
// its header are those of the stream, for Take. It does nothing if a frame is open. It returns how
// many bytes of the ring that used. The error is a *ChecksumError, and nothing is used then.
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

// next returns the header at the beginning of a and b, and the bytes behind it.
func (f *FrameReader) next(a, b []byte) (h FrameHeader, body, rest []byte, err error) {
	if len(a) == 0 {
		a, b = b, nil
	}
	if len(a) < FrameHeaderLen {
		return h, nil, nil, &ChecksumError{Header: true}
	}
	h = frameHeader(a)
	if h.Len == 0 || h.Len > maxPayload || FrameLen(int(h.Len)) > len(a)+len(b) {
		return h, nil, nil, &ChecksumError{Header: true}
	}
	body = a[FrameHeaderLen:]
	body = body[:min(len(body), int(h.Len))]
	return h, body, b[:int(h.Len)-len(body)], nil
}

// Takes returns what Take would return for n bytes, and changes nothing.
func (f *FrameReader) Takes(n int) (used int) {
	if n == f.left && n > 0 {
		n += f.pad
	}
	return n
}

// Take records that n bytes of the open frame were taken, at most Left of them. It returns how
// many bytes of the ring that used: with the last bytes of the frame also its padding.
func (f *FrameReader) Take(n int) (used int) {
	f.left -= n
	if f.left == 0 && n > 0 {
		n += f.pad
	}
	return n
}

// Read copies bytes of the stream from the frames in a and b to p. It returns how many that were,
// and how many bytes of the ring it used. The error is a *ChecksumError, and n is 0 then: the
// bytes before a wrong frame are returned first, without an error. A frame that fits p is
// copied before it is compared, so behind the n bytes p may hold others.
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

// readFrame copies the frame at the beginning of a and b, or opens it if it does not fit p.
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

// A ChecksumError is the error about a frame that did not arrive as it was sent. It matches ErrChecksum.
// Its text goes to logs, and so has nothing of the stream's bytes: in place of a header that is
// impossible some of them may lie, and from the checksum of a few bytes these can be told.
type ChecksumError struct {
	Header bool   // the header itself is impossible
	Len    uint32 // bytes of the frame, by its header; 0 if Header is set
	Want   uint32 // CRC-32C of the stream, by the header; 0 if Header is set
	Got    uint32 // CRC-32C of what arrived; 0 if Header is set
}

// Error implements error.
func (e *ChecksumError) Error() string {
	if e.Header {
		return ErrChecksum.Error() + ": no message begins here"
	}
	return fmt.Sprintf("%v: that of %d bytes is not the sender's", ErrChecksum, e.Len)
}

// Is reports whether target is ErrChecksum.
func (e *ChecksumError) Is(target error) bool { return target == ErrChecksum }
