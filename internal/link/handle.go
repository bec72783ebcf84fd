package link

import (
	"errors"
	"net"
	"time"
)

// A Stream is one end of a stream: two byte streams, that end as those of a TCP connection
// do. It implements net.Conn; its errors are causes, which no *net.OpError surrounds. Its
// methods may be called concurrently; of concurrent Writes one may come between two parts of another.
type Stream struct {
	*stream
}

var _ net.Conn = (*Stream)(nil)

// newHandle gives s, which may be nil, to the program.
func newHandle(s *stream) *Stream {
	if s == nil {
		return nil
	}
	return &Stream{s}
}

// The stream of a call may have been dialled again, or be so meanwhile: see redial.go.

// Read reads at least one byte into p, waiting for it if need be, and takes all that fits of
// what has arrived. It returns io.EOF after the peer's orderly end and all its bytes. What
// arrived before the stream failed is returned before the failure is.
func (h *Stream) Read(p []byte) (int, error) {
	s := h.now()
	n, err := s.Read(p)
	for err == errMoving {
		if s, err = h.follow(s, &s.in.waiter, &s.in.turn); err == nil {
			n, err = s.Read(p)
		}
	}
	return n, err
}

// Write writes p, and waits while the peer's ring is full. It returns how many bytes were
// handed to the device, which sends them also when the stream is closed then. What the peer's
// program closes without reading counts as written, up to a bound; see earlyclose.go.
func (h *Stream) Write(p []byte) (int, error) {
	s := h.now()
	n, err := s.Write(p)
	for err == errMoving {
		if s, err = h.follow(s, &s.out.waiter, &s.out.turn); err == nil {
			var k int
			k, err = s.Write(p[n:])
			n += k
		}
	}
	return n, err
}

// CloseWrite ends what this end sends. The peer reads io.EOF after all that was written. It
// fails with ENOTCONN if neither end can send any more.
func (h *Stream) CloseWrite() error {
	defer h.unlock()
	return h.lockNow().CloseWrite()
}

// Close closes the stream. What was written arrives; a peer whose bytes nobody has read gets a
// reset, as over TCP. Calls that wait return net.ErrClosed.
func (h *Stream) Close() error {
	defer h.unlock()
	return h.lockNow().close(false)
}

// Reset breaks the stream off: the peer's calls fail with ECONNRESET.
func (h *Stream) Reset() error {
	defer h.unlock()
	return h.lockNow().close(true)
}

// LocalAddr returns the address of this end, a *net.TCPAddr. It stays the one that the stream
// had at first.
func (h *Stream) LocalAddr() net.Addr { return h.stream.LocalAddr() }

// RemoteAddr returns that of the peer.
func (h *Stream) RemoteAddr() net.Addr { return h.stream.RemoteAddr() }

// SetDeadline sets both deadlines.
func (h *Stream) SetDeadline(t time.Time) error {
	return errors.Join(h.SetReadDeadline(t), h.SetWriteDeadline(t))
}

// SetReadDeadline sets when Reads give up, those that wait included. The zero time is never.
func (h *Stream) SetReadDeadline(t time.Time) error {
	if s := h.now(); s.stays() {
		return s.setDeadline(&s.in.waiter, t)
	}
	s := h.lockNow()
	defer h.unlock()
	return s.setDeadline(&s.in.waiter, t)
}

// SetWriteDeadline is SetReadDeadline for Writes.
func (h *Stream) SetWriteDeadline(t time.Time) error {
	if s := h.now(); s.stays() {
		return s.setDeadline(&s.out.waiter, t)
	}
	s := h.lockNow()
	defer h.unlock()
	return s.setDeadline(&s.out.waiter, t)
}

// CloseRead ends waiting for data: Reads, also those that wait, return io.EOF when nothing has
// arrived. The peer is not told unless this end does not write any more either; then its
// Writes fail with EPIPE. It fails with ENOTCONN if neither end can send any more.
func (h *Stream) CloseRead() error {
	defer h.unlock()
	return h.lockNow().closeRead()
}
