package ring

import (
	"errors"
	"fmt"
)

var (
	// ErrProtocol is matched by every error about something the peer did that the
	// protocol forbids. The connection it came from cannot go on: what the two ends
	// believe about the ring no longer agrees. The detail is a *ProtocolError.
	ErrProtocol = errors.New("ring: peer broke the protocol")

	// ErrConfig is matched by every error about an argument that this end's own
	// program got wrong.
	ErrConfig = errors.New("ring: bad argument")

	// ErrGrowing is returned by Receiver.Grow while an earlier growth has not been
	// taken up by the peer. Try again when Receiver.Growing reports false.
	ErrGrowing = errors.New("ring: an earlier growth is still under way")

	// ErrChecksum is matched by the error about bytes that did not arrive as they were
	// sent. The detail is a *ChecksumError.
	ErrChecksum = errors.New("ring: wrong checksum")
)

// ProtocolError tells what a peer did wrong. It matches ErrProtocol.
type ProtocolError struct {
	What  string // the rule that was broken
	Got   uint64 // what the peer said
	Limit uint64 // what it might have said at most, or had to say
}

// Error describes the violation.
func (e *ProtocolError) Error() string {
	return fmt.Sprintf("%v: %s (got %d, limit %d); close the connection", ErrProtocol, e.What, e.Got, e.Limit)
}

// Is reports whether target is ErrProtocol.
func (e *ProtocolError) Is(target error) bool { return target == ErrProtocol }

// violation is kept out of line so that the checks around it stay inlinable.
//
//go:noinline
func violation(what string, got, limit uint64) error {
	return &ProtocolError{What: what, Got: got, Limit: limit}
}

// misuse is kept out of line for the same reason.
//
//go:noinline
func misuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
}

// checkGeometry validates what NewSender and NewReceiver are given.
func checkGeometry(size, maxSize, depth uint32) error {
	switch {
	case !validSize(size):
		return misuse("size %d is not a power of two from %d to %d", size, MinSize, MaxSize)
	case !validSize(maxSize):
		return misuse("maximum size %d is not a power of two from %d to %d", maxSize, MinSize, MaxSize)
	case maxSize < size:
		return misuse("maximum size %d is below the size %d", maxSize, size)
	case depth < MinDepth || depth > MaxDepth:
		return misuse("receive depth %d is not from %d to %d", depth, MinDepth, MaxDepth)
	}
	return nil
}
