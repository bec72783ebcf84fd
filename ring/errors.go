package ring

import "errors"

var (
	// ErrProtocol is matched by every error about something the peer did that the
	// protocol forbids. The connection it came from cannot go on: what the two ends
	// believe about the ring no longer agrees. The detail is a *lane.ProtocolError.
	ErrProtocol = errors.New("ring: peer broke the protocol")

	// ErrConfig is matched by every error about an argument that this end's own
	// program got wrong.
	ErrConfig = errors.New("ring: bad argument")

	// ErrGrowing is returned by lane.Receiver.Offer while the peer has not taken up an
	// earlier ring. Try again later.
	ErrGrowing = errors.New("ring: an earlier growth is still under way")

	// ErrChecksum is matched by the error about bytes that did not arrive as they were
	// sent. The detail is a *ChecksumError.
	ErrChecksum = errors.New("ring: wrong checksum")
)
