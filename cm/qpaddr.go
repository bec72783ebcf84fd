package cm

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"

	"github.com/rdmanet/go-rdmanet/verbs"
)

// QPAddrSize is the size of a QPAddr of version 1 on the wire.
const QPAddrSize = 40

const (
	qpAddrMagic   = "RDMQ"
	qpAddrVersion = 1
	qpAddrHead    = 8
)

const bits24 = 1<<24 - 1

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// A QPAddr is what one end must know of the other's QP before the two can be connected
// by BringUp. The ends exchange theirs out of band: over TCP, a pipe, or whatever they
// have. docs/PROTOCOL.md, section 14.
type QPAddr struct {
	GID      verbs.GID
	GIDType  verbs.GIDType
	LID      uint16    // of the port on InfiniBand, else 0
	QPN      uint32    // 24 bits
	PSN      uint32    // of the first packet that this end sends, 24 bits
	MTU      verbs.MTU // the most that this end's port takes
	RdAtomic uint8     // READs and atomics of the peer that this end takes at once
}

// maxRdAtomic is how many READs and atomics LocalQPAddr offers to take at once.
const maxRdAtomic = 16

// LocalQPAddr is the address of a QP at a port, with a random PSN.
func LocalQPAddr(qp verbs.QP, at *Port) (QPAddr, error) {
	dev, err := qp.PD().Context().QueryDevice()
	if err != nil {
		return QPAddr{}, err
	}
	return QPAddr{
		GID: at.GID, GIDType: at.Type, LID: at.LID, MTU: at.ActiveMTU,
		QPN: qp.QPN(), PSN: rand.Uint32N(bits24 + 1),
		RdAtomic: uint8(min(dev.MaxQPRdAtom, maxRdAtomic)),
	}, nil
}

func (a QPAddr) String() string {
	s := fmt.Sprintf("QP %#06x at %s", a.QPN, place(a.GID, a.GIDType))
	if a.LID != 0 {
		s += fmt.Sprintf(", LID %d", a.LID)
	}
	return s
}

// place is a GID for people: on RoCE it is an IP address.
func place(g verbs.GID, t verbs.GIDType) string {
	switch {
	case g.IsZero():
		return "an empty GID"
	case t == verbs.GIDTypeIB:
		return fmt.Sprintf("%s %s", t, g)
	}
	return fmt.Sprintf("%s %s", t, g.Addr())
}

// AppendBinary appends the address as it goes on the wire. It fails if ParseQPAddr would.
func (a *QPAddr) AppendBinary(b []byte) ([]byte, error) {
	if err := a.check(); err != nil {
		return b, err
	}
	b = append(b, qpAddrMagic...)
	b = append(b, qpAddrVersion, qpAddrVersion, QPAddrSize, byte(a.GIDType))
	b = binary.LittleEndian.AppendUint32(b, a.QPN)
	b = binary.LittleEndian.AppendUint32(b, a.PSN)
	b = append(b, a.GID[:]...)
	b = binary.LittleEndian.AppendUint16(b, a.LID)
	b = append(b, byte(a.MTU), a.RdAtomic)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return b, nil
}

// MarshalBinary is AppendBinary to nothing.
func (a *QPAddr) MarshalBinary() ([]byte, error) {
	return a.AppendBinary(make([]byte, 0, QPAddrSize))
}

// ParseQPAddr reads an address, which must be all of b, and checks every field. It
// fails with a *MalformedError, or with a *VersionError if the peer speaks only
// versions that are newer than this package.
func ParseQPAddr(b []byte) (QPAddr, error) {
	n, err := qpAddrLength(b)
	switch {
	case err != nil:
		return QPAddr{}, err
	case len(b) < n:
		return QPAddr{}, malformedQPAddr("cut off at %d of %d bytes", len(b), n)
	case len(b) > n:
		return QPAddr{}, malformedQPAddr("%d bytes past its end", len(b)-n)
	}
	// Later versions may give the reserved bytes a meaning that version 1 can ignore.
	if b[4] == 1 && binary.LittleEndian.Uint32(b[36:]) != 0 {
		return QPAddr{}, malformedQPAddr("reserved bytes are not zero")
	}
	a := QPAddr{
		GIDType:  verbs.GIDType(b[7]),
		QPN:      binary.LittleEndian.Uint32(b[8:]),
		PSN:      binary.LittleEndian.Uint32(b[12:]),
		GID:      verbs.GID(b[16:32]),
		LID:      binary.LittleEndian.Uint16(b[32:]),
		MTU:      verbs.MTU(b[34]),
		RdAtomic: b[35],
	}
	return a, a.check()
}

// qpAddrLength is the length of the address that begins with b.
func qpAddrLength(b []byte) (int, error) {
	if len(b) < qpAddrHead {
		return 0, malformedQPAddr("%d bytes, fewer than its first fields take", len(b))
	}
	if string(b[:4]) != qpAddrMagic {
		return 0, malformedQPAddr("it begins with % x; the peer speaks another protocol", b[:4])
	}
	high, low, n := b[4], b[5], int(b[6])
	switch {
	case low == 0 || low > high:
		return 0, malformedQPAddr("versions %d to %d", low, high)
	case low > qpAddrVersion:
		return 0, &VersionError{LocalMin: qpAddrVersion, LocalMax: qpAddrVersion, PeerMin: low, PeerMax: high}
	case n < QPAddrSize || high == 1 && n != QPAddrSize:
		return 0, malformedQPAddr("length %d in version %d", n, high)
	}
	return n, nil
}

// ExchangeQPAddr sends the local address and receives the peer's. rw has to take
// QPAddrSize bytes before the peer reads them, as sockets and pipes of the system do.
func ExchangeQPAddr(rw io.ReadWriter, local *QPAddr) (remote QPAddr, err error) {
	b, err := local.MarshalBinary()
	if err != nil {
		return QPAddr{}, err
	}
	if _, err := rw.Write(b); err != nil {
		return QPAddr{}, fmt.Errorf("cm: sending the address of a QP: %w", err)
	}
	if _, err := io.ReadFull(rw, b[:qpAddrHead]); err != nil {
		return QPAddr{}, fmt.Errorf("cm: receiving the address of the peer's QP: %w", err)
	}
	n, err := qpAddrLength(b[:qpAddrHead])
	if err != nil {
		return QPAddr{}, err
	}
	b = append(b[:qpAddrHead], make([]byte, n-qpAddrHead)...)
	if _, err := io.ReadFull(rw, b[qpAddrHead:]); err != nil {
		return QPAddr{}, fmt.Errorf("cm: receiving the address of the peer's QP: %w", err)
	}
	return ParseQPAddr(b)
}

// check checks the fields whatever their encoding.
func (a *QPAddr) check() error {
	switch {
	case a.GIDType > verbs.GIDTypeRoCEv2:
		return malformedQPAddr("GID type %d", a.GIDType)
	case a.QPN < 2 || a.QPN >= bits24: // 0 and 1 are for management, the last is multicast
		return malformedQPAddr("QPN %#x", a.QPN)
	case a.PSN > bits24:
		return malformedQPAddr("PSN %#x of more than 24 bits", a.PSN)
	case a.MTU.Bytes() == 0:
		return malformedQPAddr("path MTU %d", a.MTU)
	case !isUnicast(a.GID):
		return malformedQPAddr("GID %s", a.GID)
	// LIDs from 0xc000 on are multicast (IBA 4.1.3).
	case a.GIDType == verbs.GIDTypeIB && (a.LID == 0 || a.LID >= 0xc000):
		return malformedQPAddr("LID %#x of a port on InfiniBand", a.LID)
	case a.GIDType != verbs.GIDTypeIB && a.LID != 0:
		return malformedQPAddr("LID %#x of a port on %s", a.LID, a.GIDType)
	}
	return nil
}

// isUnicast reports whether a GID can be a port's.
func isUnicast(g verbs.GID) bool {
	a := g.Addr()
	return !a.IsUnspecified() && !a.IsMulticast() && a != broadcast
}

func malformedQPAddr(format string, args ...any) error {
	return &MalformedError{What: "QP address", Detail: fmt.Sprintf(format, args...)}
}
