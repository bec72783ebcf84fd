package cm

import (
	"errors"
	"fmt"
)

// Features are abilities of one end of a connection that its first word tells.
type Features uint32

const (
	// FeatureChecksum means that this end can send and check checksums.
	FeatureChecksum Features = 1 << 2
	// FeatureWantChecksum means that this end wants them. It comes with FeatureChecksum.
	FeatureWantChecksum Features = 1 << 3
)

// ErrNoChecksum means that one end wants checksums and the other does not know them.
var ErrNoChecksum = errors.New("no checksums: one end wants them and the other is too old to know them")

// Checksums reports whether the connection has checksums: if both ends know them and one of
// them wants them. It fails with ErrNoChecksum if an end that wants them does not get them.
func Checksums(local, peer Features) (bool, error) {
	either, both := local|peer, local&peer
	if either&FeatureWantChecksum == 0 {
		return false, nil
	}
	if both&FeatureChecksum == 0 {
		return false, fmt.Errorf("%w; update it, or do without", ErrNoChecksum)
	}
	return true, nil
}
