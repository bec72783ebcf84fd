package cm

import (
	"fmt"
	"strconv"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// ErrVersion means that two ends have no version of the protocol in common, see VersionError,
// or of that of the software device.
var ErrVersion = verbs.ErrVersion

// A VersionError says which versions the two ends speak.
type VersionError struct {
	LocalMin, LocalMax uint8 // the lowest and the highest of this end
	PeerMin, PeerMax   uint8 // and of the peer
}

func (e *VersionError) Error() string {
	return "cm: " + e.Detail()
}

// Detail returns Error without the name of the package.
func (e *VersionError) Detail() string {
	return fmt.Sprintf("no common protocol version: this end speaks %s, the peer %s (update the older one)",
		versionRange(e.LocalMin, e.LocalMax), versionRange(e.PeerMin, e.PeerMax))
}

// Is matches ErrVersion.
func (e *VersionError) Is(target error) bool { return target == ErrVersion }

func versionRange(low, high uint8) string {
	if low == high {
		return strconv.Itoa(int(low))
	}
	return fmt.Sprintf("%d to %d", low, high)
}
