package cm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/rdmanet/go-rdmanet/ring"
)

// Versions of the protocol of docs/PROTOCOL.md that this package speaks.
const (
	Version    = 1
	MinVersion = 1
)

// Sizes of a handshake.
const (
	HandshakeSize    = 48 // of version 1
	MaxHandshakeSize = 56 // of any version: what fits into a request
)

const handshakeMagic = "RDMN"

// Features are abilities of one end of a connection. What both have is used; bits
// that the other end does not know are ignored.
type Features uint32

const (
	// FeatureWriteImm says that the device has RDMA_WRITE_WITH_IMM.
	FeatureWriteImm Features = 1 << 0
	// FeatureRekey says that this end takes a new rkey with the growth of a ring.
	FeatureRekey Features = 1 << 1
	// FeatureChecksum says that this end can send and check checksums.
	FeatureChecksum Features = 1 << 2
	// FeatureWantChecksum says that this end wants them. It comes with FeatureChecksum.
	FeatureWantChecksum Features = 1 << 3
	// FeatureAcknowledge asks the passive end to send a message when it has taken the
	// confirmation of its answer, and in its answer promises that.
	FeatureAcknowledge Features = 1 << 4
)

// A Handshake is what the two ends of a connection tell each other in the private
// data of Connect and of Accept: where the other may write, how much, and how
// often. docs/PROTOCOL.md, section 3.
type Handshake struct {
	Version    uint8 // the highest version this end speaks
	MinVersion uint8 // the lowest
	Features   Features
	Depth      uint32 // receive WRs posted before the handshake was sent
	Addr       uint64 // of the credit block; the ring lies ring.DataOffset bytes on
	RKey       uint32
	Size       uint32 // of the ring to begin with, a power of two
	MaxSize    uint32 // the most it may grow to, a power of two
	// Nonce is drawn at random by each end, so that whoever records handshakes can tell
	// connections apart. Nothing here looks at it.
	Nonce uint64
}

// ErrVersion says that two ends have no version of the protocol in common. See VersionError.
var ErrVersion = errors.New("no common protocol version")

// A VersionError says which versions the two ends speak.
type VersionError struct {
	LocalMin, LocalMax uint8
	PeerMin, PeerMax   uint8
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("cm: no common protocol version: this end speaks %s, the peer %s; update the older one",
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

// A MalformedError says what is wrong with a handshake, a refusal or the address of a QP. It is an ErrProtocol.
type MalformedError struct {
	What   string // "handshake", "refusal" or "QP address"
	Detail string
}

func (e *MalformedError) Error() string { return "cm: malformed " + e.What + ": " + e.Detail }

// Is matches ErrProtocol.
func (e *MalformedError) Is(target error) bool { return target == ErrProtocol }

func malformedHandshake(format string, args ...any) error {
	return &MalformedError{What: "handshake", Detail: fmt.Sprintf(format, args...)}
}

// AppendBinary appends the handshake as it goes on the wire, in the layout of
// version 1. It fails if ParseHandshake would.
func (h *Handshake) AppendBinary(b []byte) ([]byte, error) {
	if err := h.check(); err != nil {
		return b, err
	}
	b = append(b, handshakeMagic...)
	b = append(b, h.Version, h.MinVersion, HandshakeSize, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Features))
	b = binary.LittleEndian.AppendUint32(b, h.Depth)
	b = binary.LittleEndian.AppendUint64(b, h.Addr)
	b = binary.LittleEndian.AppendUint32(b, h.RKey)
	b = binary.LittleEndian.AppendUint32(b, h.Size)
	b = binary.LittleEndian.AppendUint32(b, h.MaxSize)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, h.Nonce)
	return b, nil
}

// MarshalBinary is AppendBinary to nothing.
func (h *Handshake) MarshalBinary() ([]byte, error) {
	return h.AppendBinary(make([]byte, 0, HandshakeSize))
}

// ParseHandshake reads a handshake from private data, which may be padded with
// zeros, and checks every field. It fails with a *MalformedError, or with a
// *VersionError if the peer speaks only versions that are newer than this package.
func ParseHandshake(b []byte) (Handshake, error) {
	var h Handshake
	if len(b) < 8 {
		return h, malformedHandshake("%d bytes, fewer than its first fields take", len(b))
	}
	if string(b[:4]) != handshakeMagic {
		return h, malformedHandshake("it begins with % x; the peer speaks another protocol", b[:4])
	}
	h.Version, h.MinVersion = b[4], b[5]
	if err := checkVersions(h.Version, h.MinVersion); err != nil {
		return h, err
	}
	// Beyond its first six bytes nothing is known of a layout that is newer.
	if h.MinVersion > Version {
		return h, versionError(h)
	}
	n := int(b[6])
	switch {
	case n < HandshakeSize || n > MaxHandshakeSize || h.Version == 1 && n != HandshakeSize:
		return h, malformedHandshake("length %d in version %d", n, h.Version)
	case n > len(b):
		return h, malformedHandshake("cut off at %d of %d bytes", len(b), n)
	}
	for i, c := range b[n:] {
		if c != 0 {
			return h, malformedHandshake("byte %#02x at offset %d, past its end", c, n+i)
		}
	}
	// Later versions may give the reserved bytes a meaning that version 1 can ignore.
	if h.Version == 1 && (b[7] != 0 || binary.LittleEndian.Uint32(b[36:]) != 0) {
		return h, malformedHandshake("reserved bytes are not zero")
	}
	h.Features = Features(binary.LittleEndian.Uint32(b[8:]))
	h.Depth = binary.LittleEndian.Uint32(b[12:])
	h.Addr = binary.LittleEndian.Uint64(b[16:])
	h.RKey = binary.LittleEndian.Uint32(b[24:])
	h.Size = binary.LittleEndian.Uint32(b[28:])
	h.MaxSize = binary.LittleEndian.Uint32(b[32:])
	h.Nonce = binary.LittleEndian.Uint64(b[40:])
	return h, h.check()
}

func checkVersions(high, low uint8) error {
	if low == 0 || low > high {
		return malformedHandshake("versions %d to %d", low, high)
	}
	return nil
}

// check checks the fields whatever their encoding.
func (h *Handshake) check() error {
	if err := checkVersions(h.Version, h.MinVersion); err != nil {
		return err
	}
	switch {
	case h.Depth < ring.MinDepth || h.Depth > ring.MaxDepth:
		return malformedHandshake("depth %d is not within %d to %d", h.Depth, ring.MinDepth, ring.MaxDepth)
	case !ringSize(h.Size):
		return malformedHandshake("ring size %d is not a power of two from %d to %d", h.Size, ring.MinSize, ring.MaxSize)
	case !ringSize(h.MaxSize):
		return malformedHandshake("largest ring size %d is not a power of two from %d to %d", h.MaxSize, ring.MinSize, ring.MaxSize)
	case h.MaxSize < h.Size:
		return malformedHandshake("largest ring size %d is less than ring size %d", h.MaxSize, h.Size)
	case h.Features&(FeatureChecksum|FeatureWantChecksum) == FeatureWantChecksum:
		return malformedHandshake("it wants checksums that it does not know")
	case h.Addr > math.MaxUint64-ring.DataOffset-uint64(h.MaxSize):
		return malformedHandshake("memory of %d bytes at %#x leaves the address space", ring.DataOffset+uint64(h.MaxSize), h.Addr)
	}
	return nil
}

func ringSize(n uint32) bool {
	return n >= ring.MinSize && n <= ring.MaxSize && bits.OnesCount32(n) == 1
}

// Negotiate returns the version that both ends use: the highest they have in
// common, so both come to the same one. Without one it fails with a *VersionError.
func Negotiate(local, peer Handshake) (version uint8, err error) {
	version = min(local.Version, peer.Version)
	if version == 0 || version < local.MinVersion || version < peer.MinVersion {
		return 0, &VersionError{
			LocalMin: local.MinVersion, LocalMax: local.Version,
			PeerMin: peer.MinVersion, PeerMax: peer.Version,
		}
	}
	return version, nil
}

// ErrNoChecksum says that one end wants checksums and the other does not know them.
var ErrNoChecksum = errors.New("no checksums: one end wants them and the other is too old to know them")

// Checksums says whether the connection has checksums: if both ends know them and one of
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

func versionError(peer Handshake) error {
	return &VersionError{
		LocalMin: MinVersion, LocalMax: Version,
		PeerMin: peer.MinVersion, PeerMax: peer.Version,
	}
}
