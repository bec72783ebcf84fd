package link

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmanet/go-rdmanet/internal/verbs"
	"github.com/rdmanet/go-rdmanet/ring"
	"github.com/rdmanet/go-rdmanet/ring/lane"
)

var (
	// ErrLinkClosed says that this end has closed the link.
	ErrLinkClosed = errors.New("link: closed")
	// errRetired is returned to a dial whose link takes no more: another link may.
	errRetired = errors.New("link: the link takes no more streams")
	// errGone is the end of a link whose peer has left or broken it off.
	errGone = fmt.Errorf("%w: the link has ended", verbs.ErrPeerGone)
	// errSilent is a dialer that has connected and says nothing.
	errSilent = fmt.Errorf("link: the dialer has not spoken within %v", handshakeTimeout)
)

// ended is why a stream fails whose link has ended. A link that this end has ended because
// the peer lied says ECONNABORTED, every other ECONNRESET.
func ended(cause error) error {
	if lied(cause) {
		return fmt.Errorf("%w: %w", syscall.ECONNABORTED, cause)
	}
	return fmt.Errorf("%w: %w", syscall.ECONNRESET, cause)
}

// lied reports whether err says that the peer broke the protocol.
func lied(err error) bool {
	return errors.Is(err, ring.ErrProtocol) || errors.Is(err, verbs.ErrProtocol)
}

// refusals are what the codes of REFUSED and RESET tell an application.
var refusals = map[lane.Code]string{
	lane.CodePort:      "the listener has another stream of that port",
	lane.CodeGoingAway: "the listener takes no more streams",
	lane.CodeNoMemory:  "the peer has no memory for the stream",
	lane.CodeClosed:    "the listener was closed",
	lane.CodeProtocol:  "the peer says that this end broke the protocol",
	lane.CodeChecksum:  "the peer found that bytes did not arrive as they were sent",
}

// reset is why a stream fails that the peer has broken off.
func reset(code lane.Code) error {
	if text := refusals[code]; text != "" {
		return fmt.Errorf("%w: %s", syscall.ECONNRESET, text)
	}
	return syscall.ECONNRESET
}
