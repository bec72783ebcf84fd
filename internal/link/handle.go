package link

import (
	"net"
	"runtime"
)

// A Stream is one end of a stream: two byte streams, that end as those of a TCP connection
// do. It implements net.Conn; its errors are causes, which no *net.OpError surrounds. Its
// methods may be called concurrently.
//
// A Stream that nothing refers to any more and no call is in, and that was not closed, is
// closed by the garbage collector some time later, as connections of package net are.
type Stream struct {
	*stream
}

var _ net.Conn = (*Stream)(nil)

// newHandle gives s, which may be nil, to the program.
func newHandle(s *stream) *Stream {
	if s == nil {
		return nil
	}
	h := &Stream{s}
	runtime.AddCleanup(h, (*stream).dropped, s)
	return h
}

// dropped closes a stream that no program can close any more. One that is closed stays so.
func (s *stream) dropped() { _ = s.close(false) }

// Calls keep the handle, since some programs have no other use for it than the call that waits.

// Read reads at least one byte into p, waiting for it if need be, and takes all that fits of
// what has arrived. It returns io.EOF after the peer's orderly end and all its bytes. What
// arrived before the stream failed is returned before the failure is.
func (h *Stream) Read(p []byte) (int, error) {
	n, err := h.stream.Read(p)
	runtime.KeepAlive(h)
	return n, err
}

// Write writes p, and waits while the peer's ring is full. It returns how many bytes were
// handed to the device, which sends them also when the stream is closed then.
func (h *Stream) Write(p []byte) (int, error) {
	n, err := h.stream.Write(p)
	runtime.KeepAlive(h)
	return n, err
}

// CloseWrite ends what this end sends. The peer reads io.EOF after all that was written. It
// fails with ENOTCONN if neither end can send any more.
func (h *Stream) CloseWrite() error {
	err := h.stream.CloseWrite()
	runtime.KeepAlive(h)
	return err
}

// Close closes the stream. What was written arrives; a peer whose bytes nobody has read gets a
// reset, as over TCP. Calls that wait return net.ErrClosed.
func (h *Stream) Close() error { return h.stream.Close() }

// Reset breaks the stream off: the peer's calls fail with ECONNRESET.
func (h *Stream) Reset() error { return h.stream.Reset() }
