package hello

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// A LinkID is what the lanes of a dialing process to one listener have in common: the listener
// shares its places fairly among links, not lanes. It is drawn by the dialer, and no other can
// guess it, so none can have its lanes counted as those of another. It is not 0.
type LinkID uint64

// A Secret is what a process makes the ids of its links of. Who dials with another Secret is
// another dialer to every listener.
type Secret [32]byte

// NewSecret draws a Secret.
func NewSecret() (s Secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// Link returns the id of the link to dst. It tells a listener nothing of the links to others.
func (s *Secret) Link(dst netip.AddrPort) LinkID {
	to, _ := dst.MarshalBinary() // never fails
	sum := sha256.Sum256(append(s[:], to...))
	return LinkID(max(binary.LittleEndian.Uint64(sum[:]), 1))
}
