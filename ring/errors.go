package ring

import "errors"

var (
	// ErrProtocol is matched by every error about a peer that broke the protocol. The
	// connection cannot go on, since its two ends no longer agree. The detail is a
	// *lane.ProtocolError.
	ErrProtocol = errors.New("ring: peer broke the protocol")

	// ErrConfig is matched by every error about an argument that is wrong: a mistake of
	// the program, not of the peer.
	ErrConfig = errors.New("ring: bad argument")

	// ErrGrowing is returned by Offer of lane.Lane while the peer does not use the ring that
	// was offered before. Try again later.
	ErrGrowing = errors.New("ring: an earlier growth is still under way")

	// ErrChecksum is matched by the error about bytes that did not arrive as they were
	// sent. The detail is a *ChecksumError, unless all frames were right and the whole
	// stream was not.
	ErrChecksum = errors.New("ring: wrong checksum")
)
