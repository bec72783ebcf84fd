package link

import (
	"errors"
	"io"
	"syscall"
)

// A peer that answers early closes before it has read all that was written to it: a server that
// refuses a request, or was spoken to in another protocol. Over TCP such a Write succeeds, since
// the socket buffers what nobody will read, and the program goes on to read the answer. Here a
// Write waits for room in the peer's ring, and would fail instead.

// mostDropped is how much of a Write may be dropped unread: less than a socket would buffer.
const mostDropped = 64 << 10

// toleratesClose reports whether a Write of n bytes that begins now succeeds where the peer closes, or has
// closed and the program does not know. Over TCP one of nothing asks nobody, and fails only when one of
// something has. mu is held.
func (s *stream) toleratesClose(n int) bool {
	return s.end.cause == nil && !s.end.writeRefused && (n == 0 || !s.end.told)
}

// peerClosed reports whether nothing can be written since the peer's program has closed the
// stream in order. mu is held.
func (s *stream) peerClosed() bool {
	return !s.end.closed && !s.end.shut && s.end.cause == nil && !s.moving() && s.st.Quiet()
}

// dropsRest reports whether a Write that failed with err, left bytes before its end, succeeds all the
// same. open is what toleratesClose said when it began. It succeeds only where the peer's program has
// closed without reading, in order or with a reset, so that no byte is lost that anybody would have read.
// The next Write fails. mu is held.
func (s *stream) dropsRest(open bool, err error, left int) bool {
	switch {
	case s.peerClosed():
		if !errors.Is(err, syscall.EPIPE) {
			return false
		}
		s.end.writeRefused = s.end.writeRefused || left > 0
		return open && left <= mostDropped
	case s.end.closed, s.end.shut:
		return false
	}
	reset := s.end.cause == error(syscall.ECONNRESET) // other failures say why
	return open && reset && (err == s.end.cause || err == error(syscall.EPIPE)) && left <= mostDropped
}

// noteReadErr records an error that a call which reads returns. mu is held.
func (s *stream) noteReadErr(err error) { s.end.told = s.end.told || err == io.EOF }
