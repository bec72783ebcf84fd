//go:build linux && (amd64 || arm64)

package control

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/rdmanet/go-rdmanet/internal/verbs/driver"
	"github.com/rdmanet/go-rdmanet/verbs"
)

// The messages of the connection manager. All numbers are little endian, all
// reserved bytes zero, and a message is exactly as long as its lengths say.
//
//	       0     1     2     3     4     5     6     7     8        12       14      16
//	REQ    type  vers  flags resp  init  retry rnr   nPriv QPN      nOffer tos 0     src[24] dst[24] private offer
//	REP    type  vers  flags resp  init  0     rnr   nPriv QPN      nOffer   0       private offer
//	REJ    type  vers  reason      nPriv 0     0     0     private
//	RTU    type  vers
//
// The first two bytes, and the whole of REJ, are the same in every version.
const (
	MsgREQ = 1
	MsgREP = 2
	MsgREJ = 3
	MsgRTU = 4

	MsgSHARE  = 5 // these two are of listeners that share an address: the device has them
	MsgSHARED = 6

	// WireVersion covers these messages, the offers in them, and what a
	// connection's two ends share in memory.
	WireVersion = 4

	connHeadLen = 16
	wireAddrLen = 24
	reqHeadLen  = connHeadLen + 2*wireAddrLen
	rejHeadLen  = 8

	flagFlowControl = 1 << 0
	flagSRQ         = 1 << 1
)

// RejectAgain answers a dialer for which there was no place and that was asked nothing: it
// may dial again. The number is the device's own, as that of driver.RejectDenied.
const RejectAgain driver.RejectReason = 0x8001

// RejectUnsupported answers a request of another wire version (IBA 12.6.7.2: unsupported request).
const RejectUnsupported driver.RejectReason = 5

// VersionError is returned for a message of another version.
type VersionError uint8

func (v VersionError) Error() string {
	return fmt.Sprintf("the peer speaks version %d of the software device's protocol, this library speaks %d: update the older of the two", uint8(v), WireVersion)
}

func (VersionError) Unwrap() []error { return []error{verbs.ErrVersion, verbs.ErrProtocol} }

// A ConnMsg is a REQ or a REP.
type ConnMsg struct {
	Param    driver.ConnParam
	Src, Dst netip.AddrPort // REQ only
	TOS      uint8          // REQ only
	Offer    []byte         // what the QP at the other end needs to know of this one
}

// AppendREQ appends m as a REQ.
func AppendREQ(b []byte, m *ConnMsg) []byte {
	b = appendConnHead(b, MsgREQ, m)
	b = appendWireAddr(b, m.Src)
	b = appendWireAddr(b, m.Dst)
	b = append(b, m.Param.PrivateData...)
	return append(b, m.Offer...)
}

// AppendREP appends m as a REP.
func AppendREP(b []byte, m *ConnMsg) []byte {
	b = appendConnHead(b, MsgREP, m)
	b = append(b, m.Param.PrivateData...)
	return append(b, m.Offer...)
}

func appendConnHead(b []byte, typ byte, m *ConnMsg) []byte {
	p := &m.Param
	var flags, retry, tos byte
	if p.FlowControl {
		flags |= flagFlowControl
	}
	if p.SRQ {
		flags |= flagSRQ
	}
	if typ == MsgREQ {
		retry, tos = p.RetryCount, m.TOS
	}
	b = append(b, typ, WireVersion, flags, p.ResponderResources, p.InitiatorDepth, retry, p.RNRRetryCount, byte(len(p.PrivateData)))
	b = binary.LittleEndian.AppendUint32(b, p.QPNum)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Offer)))
	return append(b, tos, 0)
}

// ParseREQ parses a REQ. The offer is a part of b, the private data is not.
func ParseREQ(b []byte) (m ConnMsg, err error) {
	if err := checkHead(b, MsgREQ, reqHeadLen); err != nil {
		return m, err
	}
	var ok bool
	if m.Src, ok = parseWireAddr(b[connHeadLen:]); !ok {
		return m, BadMessage("REQ with a bad source address")
	}
	if m.Dst, ok = parseWireAddr(b[connHeadLen+wireAddrLen:]); !ok {
		return m, BadMessage("REQ with a bad destination address")
	}
	if m.Src.Addr().Is4() != m.Dst.Addr().Is4() {
		return m, BadMessage("REQ from one address family to the other")
	}
	m.TOS = b[14]
	return m, parseConn(b, reqHeadLen, driver.MaxConnectPrivateData, &m)
}

// ParseREP parses a REP. The offer is a part of b, the private data is not.
func ParseREP(b []byte) (m ConnMsg, err error) {
	if err := checkHead(b, MsgREP, connHeadLen); err != nil {
		return m, err
	}
	if b[5] != 0 || b[14] != 0 {
		return m, BadMessage("REP with what is the dialer's to say")
	}
	return m, parseConn(b, connHeadLen, driver.MaxAcceptPrivateData, &m)
}

// parseConn parses what REQ and REP have in common.
func parseConn(b []byte, headLen, maxPrivate int, m *ConnMsg) error {
	flags, nPriv, nOffer := b[2], int(b[7]), int(binary.LittleEndian.Uint16(b[12:]))
	switch {
	case flags&^(flagFlowControl|flagSRQ) != 0 || b[5] > 7 || b[6] > 7 || b[15] != 0:
		return BadMessage("connection parameters out of range")
	case nPriv > maxPrivate:
		return BadMessage(strconv.Itoa(nPriv) + " bytes of private data")
	case len(b) != headLen+nPriv+nOffer:
		return BadMessage("connection message whose parts do not make up its length")
	}
	m.Param = driver.ConnParam{
		PrivateData:        append([]byte(nil), b[headLen:headLen+nPriv]...),
		ResponderResources: b[3],
		InitiatorDepth:     b[4],
		FlowControl:        flags&flagFlowControl != 0,
		RetryCount:         b[5],
		RNRRetryCount:      b[6],
		SRQ:                flags&flagSRQ != 0,
		QPNum:              binary.LittleEndian.Uint32(b[8:]),
	}
	m.Offer = b[headLen+nPriv:]
	return nil
}

// AppendREJ appends a REJ.
func AppendREJ(b []byte, reason driver.RejectReason, private []byte) []byte {
	b = append(b, MsgREJ, WireVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(reason))
	b = append(b, byte(len(private)), 0, 0, 0)
	return append(b, private...)
}

// ParseREJ parses a REJ of any version, which version says.
func ParseREJ(b []byte) (version uint8, reason driver.RejectReason, private []byte, err error) {
	if len(b) < rejHeadLen || b[0] != MsgREJ || len(b) != rejHeadLen+int(b[4]) {
		return 0, 0, nil, BadMessage("REJ of a wrong length")
	}
	if int(b[4]) > driver.MaxRejectPrivateData || b[5]|b[6]|b[7] != 0 {
		return 0, 0, nil, BadMessage("REJ out of range")
	}
	return b[1], driver.RejectReason(binary.LittleEndian.Uint16(b[2:])), append([]byte(nil), b[rejHeadLen:]...), nil
}

// CheckSignal checks a message that has only a type and a version.
func CheckSignal(b []byte, typ byte) error {
	if err := checkHead(b, typ, 2); err != nil {
		return err
	}
	if len(b) != 2 {
		return BadMessage("signal of a wrong length")
	}
	return nil
}

// checkHead checks type, version and least length of a message.
func checkHead(b []byte, typ byte, least int) error {
	switch {
	case len(b) < 2 || b[0] != typ:
		return BadMessage("another message than the one due")
	case b[1] != WireVersion:
		return VersionError(b[1])
	case len(b) < least:
		return BadMessage("message that ends in its head")
	}
	return nil
}

// appendWireAddr appends ip[16], zone u32, port u16, 0 u16.
func appendWireAddr(b []byte, a netip.AddrPort) []byte {
	ip := a.Addr().As16()
	zone, _ := strconv.ParseUint(a.Addr().Zone(), 10, 32) // canonical: an index, or none
	b = append(b, ip[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(zone))
	b = binary.LittleEndian.AppendUint16(b, a.Port())
	return append(b, 0, 0)
}

// parseWireAddr takes canonical, specific addresses only.
func parseWireAddr(b []byte) (a netip.AddrPort, ok bool) {
	ip := netip.AddrFrom16([16]byte(b[:16])).Unmap()
	zone := binary.LittleEndian.Uint32(b[16:])
	port := binary.LittleEndian.Uint16(b[20:])
	if (zone != 0) != (ip.Is6() && ip.IsLinkLocalUnicast()) || ip.IsUnspecified() || port == 0 || b[22]|b[23] != 0 {
		return a, false
	}
	if zone != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(zone), 10))
	}
	return netip.AddrPortFrom(ip, port), true
}

// BadMessage is the error of a message that breaks the protocol.
func BadMessage(what string) error { return fmt.Errorf("%s: %w", what, verbs.ErrProtocol) }
